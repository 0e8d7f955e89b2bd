# What scripts/gpu-check does, a function a phase. Each prints what it does, JSON objects on lines of their own, and returns 77 where
# there is nothing to do it with; its last line is then the reason.

# The programs and what they read; only the script itself and this folder are the checkout's.
unpack() {
  root=$(mktemp -d)
  say "unpacking $1"
  if ! tar -C "$root" -xf "$1" && ! python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$root"; then
    say "$1 cannot be unpacked"
    return 1
  fi
  cd "$root" || return 1
  export bin=$root/bin
}

# CUDA's own libraries, where the loader may not know them: the toolkit's, then those that Python packages bring. For our programs
# alone: PyTorch knows where its own are.
find_libraries() {
  given_path=${LD_LIBRARY_PATH:-}
  local found
  found=$(ls -d /usr/local/cuda/lib64 /usr/local/cuda/targets/*/lib 2> /dev/null
    python3 - 2> /dev/null << 'END'
import glob
import nvidia
for root in nvidia.__path__:
    for name in ("libcublasLt.so.1*", "libnccl.so.2"):
        for path in glob.glob(f"{root}/**/{name}", recursive=True):
            print(path.rsplit("/", 1)[0])
END
  )
  found=$(awk '!seen[$0]++' <<< "$found" | paste -sd:)
  export given_path LD_LIBRARY_PATH=$given_path${given_path:+${found:+:}}$found
}

device() {
  local tool fields=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu
  for tool in python3 nvcc ncu compute-sanitizer; do echo "$tool: $(command -v $tool || echo none)"; done
  echo "kernel: $(uname -sr), $(nproc) processors, loader's path: $LD_LIBRARY_PATH"
  [ ! -f commit ] || echo '{"group": "device", "name": "packed from", "commit": "'"$(plain < commit)"'"}'
  command -v nvidia-smi > /dev/null || { echo "no nvidia-smi: no driver?"; return 77; }
  nvidia-smi --query-gpu=$fields --format=csv
  nvidia-smi --query-gpu=$fields --format=csv,noheader | head -1 |
    sed 's/.*/{"group": "device", "name": "&", "fields": "'$fields'"}/'
}

build_here() {
  local work=build/gpu-source arch
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  [ "$arch" = 90 ] && arch=90a  # what only Hopper has
  cmake -S . -B $work -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUIRE_BACKENDS_ONLY=ON -DQUIRE_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${arch:-native}" -DCMAKE_CUDA_COMPILER="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}" &&
    cmake --build $work --target cuda_ops_test cuda_ops_perf &&
    mkdir -p "$bin" && cp $work/tests/ops/cuda_ops_test $work/tests/perf/cuda_ops_perf "$bin/"
}

first_contact() { "$bin/cuda_ops_perf" --contact; }

first_model() {
  [ -x "$bin/quire" ] || { echo "no engine: built from source"; return 77; }
  local status=0
  "$bin/cuda_engine_perf" --tiny || status=1
  "$bin/quire" check tests/data/golden/models/phi3-longrope --device cuda || status=1
  return $status
}

# Named with their times as they end, so that a run that is cut off says how far it came.
operator_tests() {
  if grep -aq without_catch2 "$bin/cuda_ops_test"; then "$bin/cuda_ops_test" "~[cpu]"; return; fi
  "$bin/cuda_ops_test" "~[cpu]" -d yes
}

reference_answers() {
  [ -x "$bin/quire" ] || { echo "no engine: built from source"; return 77; }
  local model said status=0
  for model in tests/data/golden/{models,quantized}/*/; do
    said=right
    timeout --foreground -k 2 25 "$bin/quire" check "$model" --device cuda || { said="failed, exit $?"; status=1; }
    echo '{"group": "answers", "name": "'"$model"'", "said": "'"$said"'"}'
  done
  return $status
}

engine_speed() {
  [ -x "$bin/cuda_engine_perf" ] || { echo "no engine: built from source"; return 77; }
  "$bin/cuda_engine_perf" --seconds 90
}

# Some kernels once each, by their hardware counters: where these are forbidden (ERR_NVGPUCTRPERM) or the tool does not work, skipped.
profile_kernels() {
  local tool status
  tool=$(command -v ncu || ls -d /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2> /dev/null | tail -1)
  [ -n "$tool" ] || { echo "no ncu here"; return 77; }
  "$tool" --clock-control none --profile-from-start off --section SpeedOfLight --section Occupancy --section WarpStateStats \
    --section MemoryWorkloadAnalysis --csv --page details --log-file "$out/ncu.csv" "$bin/cuda_ops_perf" --profile
  status=$?
  if grep -q '^"[0-9]' "$out/ncu.csv"; then return $status; fi
  grep -hE 'ERR_NVGPUCTRPERM|LibraryNotLoaded|==ERROR==' "$out/ncu.csv" | head -1 | grep . && return 77
  return $status
}

# With the Python that has torch.
torch_peers() {
  export LD_LIBRARY_PATH=$given_path
  python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null || { echo "no python3 with torch and CUDA"; return 77; }
  python3 tests/perf/torch_peers.py
}

evaluation() {
  [ -x "$bin/quire" ] || { echo "no engine: built from source"; return 77; }
  command -v python3 > /dev/null || { echo "no python3"; return 77; }
  python3 tests/eval/eval.py "$bin/quire" models/quire-tiny --configurations "base,batch 32"
}

# With as many ranks as there are GPUs, 4 at most; sizes that do not divide a model are refused by the model's own numbers.
ranks() {
  [ -x "$bin/quire" ] || { echo "no engine: built from source"; return 77; }
  local model said status=0 size
  size=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
  [ "$size" -ge 2 ] || { echo "one GPU: a rank needs one of its own"; return 77; }
  [ "$size" -lt 4 ] && size=2 || size=4
  for model in tests/data/golden/{models,quantized}/*/; do
    said=$("$bin/quire" check "$model" --device cuda --tensor-parallel-size "$size" 2>&1) ||
      grep -qE "libnccl|only .* work|(and|only) [0-9]+ works?" <<< "$said" || status=1
    echo "$said"
    if grep -q libnccl <<< "$said"; then return 77; fi
  done
  python3 tests/eval/eval.py "$bin/quire" models/quire-tiny --configurations "2 ranks" || status=1
  return $status
}

# A family of kernels at a time, the quick ones first: a tool makes them 10 to 100 times slower, and what there is no time for is left
# out.
sanitize() {
  local tool family said status=0 begin=$SECONDS limit=$2
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null) ||
    { echo "no compute-sanitizer here"; return 77; }
  for family in norm rows linear moe mla state attention sampling; do
    [ $((SECONDS - begin)) -lt "$limit" ] || { echo "left out: [$family] and what follows"; break; }
    said=clean
    timeout -k 2 15 "$tool" --tool "$1" --error-exitcode 9 "$bin/cuda_ops_test" "[$family]~[cpu]~[draws]~[large]" > "$out/log.part" 2>&1
    case $? in
      0) ;;
      124 | 137) said="left out, out of time" ;;
      *) said=failed ;;
    esac
    cat "$out/log.part"
    # As in some virtual machines.
    if grep -q "Device not supported" "$out/log.part"; then rm "$out/log.part"; echo "Device not supported"; return 77; fi
    [ "$said" != failed ] || status=1
    echo '{"group": "sanitizer", "name": "'"$1, [$family]"'", "said": "'"$said"'"}'
  done
  rm -f "$out/log.part"
  return $status
}
