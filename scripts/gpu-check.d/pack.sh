# scripts/gpu-check --pack: programs for sm_90a with the libraries that the other machine may lack, and all that they and the phases
# read, so that of the checkout only scripts/ need travel with it.
max_mib=60  # with what else travels

# A program's libraries but glibc, the driver and CUDA's own, which the other machine has; cuBLASLt is opened at run time and
# not seen here at all.
carried_libraries() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libcuda|libcudart)\.so'
}

mib_of() { echo $((($1 + 1048575) / 1048576)); }

make_bundle() {
  local build=build/gpu-pack stage=build/gpu-pack/bundle program missing
  local programs=(tests/ops/cuda_ops_test tests/perf/cuda_ops_perf tests/perf/cuda_engine_perf app/quire)
  mkdir -p build
  echo "gpu-check: building in $build"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUIRE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90a \
    -DQUIRE_PORTABLE=ON -DQUIRE_TESTS=ON -DQUIRE_PERF=ON \
    -DCMAKE_CUDA_COMPILER="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}" > "$build.log"
  cmake --build "$build" --target cuda_ops_test cuda_ops_perf cuda_engine_perf quire
  rm -rf "$stage"
  mkdir -p "$stage/bin/lib"
  for program in "${programs[@]}"; do
    strip -o "$stage/bin/${program##*/}" "$build/$program"
  done
  carried_libraries "${programs[@]/#/$build/}" | xargs -I{} cp -L {} "$stage/bin/lib/"
  strip --strip-unneeded "$stage"/bin/lib/*
  cp -r --parents models/quire-tiny tests/data/golden/{models,quantized} tests/eval/eval.py tests/cuda_budgets/budgets.txt \
    tests/perf/{cuda_model,device_model,latent_model,gpu_report,torch_peers}.py "$stage/"
  git log -1 --format='%h %s' > "$stage/commit" 2> /dev/null || echo "no repository" > "$stage/commit"
  mkdir -p "$(dirname "$bundle")"
  # The programs, one behind the other, have the same kernels, which gzip forgets: 60 MiB, not 25.
  tar -C "$stage" -cf - bin tests models commit | xz -9 > "$bundle"
  # Here they start, and find all but a device; a missing library would be another status.
  missing=
  for program in cuda_ops_test cuda_ops_perf cuda_engine_perf; do
    (cd "$stage" && "bin/$program" > /dev/null 2>&1) || [ $? = 77 ] || missing="$missing $program"
  done
  "$stage/bin/quire" --help > /dev/null || missing="$missing quire"
  [ -z "$missing" ] || { echo "gpu-check: these do not start:$missing" >&2; exit 1; }
  weigh_bundle
}

# Beside the bundle a whole checkout travels, unless most of it is absent.
weigh_bundle() {
  local mine tree
  mine=$(mib_of "$(stat -c %s "$bundle")")
  tree=$(mib_of "$(git ls-files -co --exclude-standard -z 2> /dev/null | xargs -0 stat -c %s 2> /dev/null | awk '{all += $1} END {print all + 0}')")
  echo "gpu-check: $bundle, $mine MiB; the checkout, $tree MiB"
  [ "$mine" -le "$max_mib" ] || { echo "gpu-check: more than $max_mib MiB" >&2; exit 1; }
  [ $((mine + tree)) -le "$max_mib" ] || cat << END
gpu-check: together more than $max_mib MiB. Where that is too much, let the script alone travel with the bundle. In a clean checkout:
  git rm -rq . ':!scripts' ':!.gitignore'     # and afterwards: git reset -q --hard
END
}
