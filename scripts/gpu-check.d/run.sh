# How scripts/gpu-check runs a phase, and what it leaves behind.
records=$out/records.jsonl log=$out/log.txt
: > "$records"
: > "$log"
failed=0 last_status=0 optional= running=
left() { echo $((seconds - SECONDS)); }
say() { printf 'gpu-check: [%3ds] %s\n' "$SECONDS" "$*"; }

# Without what JSON would have to escape.
plain() { tr -cd '[:print:]' | tr -d '"\\' | cut -c1-300; }

# record_phase NAME STATUS SECONDS [SAID]
record_phase() {
  printf '{"group": "phase", "name": "%s", "status": "%s", "seconds": %s%s}\n' "$1" "$2" "$3" "${4:+, \"said\": \"$4\"}" >> "$records"
  say "$1: $2 after $3 s${4:+ ($4)}"
  report
}

# The command in a process group of its own, its output at the end of the log; at the limit the group is killed, and not waited for:
# what hangs in a driver may never end. 124: it ran past the limit.
run_limited() {
  local limit=$1 end
  shift
  set -m
  "$@" >> "$log" 2>&1 < /dev/null &
  running=$!
  set +m
  end=$((SECONDS + limit))
  while kill -0 "$running" 2> /dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.2; done
  if kill -0 "$running" 2> /dev/null; then
    stop_running
    return 124
  fi
  wait "$running"
  end=$?
  running=
  return $end
}

stop_running() {
  [ -n "$running" ] || return 0
  local signal
  for signal in TERM KILL; do
    kill -"$signal" -- "-$running" 2> /dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      kill -0 "$running" 2> /dev/null || break
      sleep 0.2
    done
  done
  disown "$running" 2> /dev/null
  running=
}

# phase NAME LIMIT COMMAND…: its JSON lines are records; exit status 77 is "skipped". An optional phase that has too little time is left
# out, any other has failed.
phase() {
  local name=$1 limit=$2 from begin=$SECONDS said
  shift 2
  last_status=0
  grep -qE -- "$only" <<< "$name" || [ "$name" = device ] || return 0
  [ "$limit" -lt "$(left)" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then record_phase "$name" "left out, no time" 0; return 0; fi
  say "$name (at most $limit s)"
  printf '\n== %s\n' "$name" >> "$log"
  from=$(($(stat -c %s "$log") + 1))
  run_limited "$limit" "$@"
  last_status=$?
  tail -c "+$from" "$log"
  tail -c "+$from" "$log" | grep -aE '^\{".*\}$' >> "$records"
  said=$(tail -c "+$from" "$log" | grep -avE '^\{"|^ *$' | tail -1 | plain)
  case $last_status in
    0) record_phase "$name" passed $((SECONDS - begin)) ;;
    77) record_phase "$name" skipped $((SECONDS - begin)) "$said" ;;
    124)
      if [ -n "$optional" ]; then record_phase "$name" "left out, out of time" $((SECONDS - begin)); return 0; fi
      record_phase "$name" "out of time" $((SECONDS - begin)) "$said"
      failed=$((failed + 1)) ;;
    *)
      record_phase "$name" "failed, exit $last_status" $((SECONDS - begin)) "$said"
      failed=$((failed + 1)) ;;
  esac
}

# table.txt and report.json. Without Python they have the records alone.
report() {
  if command -v python3 > /dev/null &&
    PYTHONUTF8=1 python3 -S tests/perf/gpu_report.py "$out" > "$out/table.new" 2>> "$log" && mv "$out/table.new" "$out/table.txt"; then
    return 0
  fi
  rm -f "$out/table.new"
  (echo "["; sed '$!s/$/,/' "$records"; echo "]") > "$out/report.json"
  # {"group": "probe", "name": "…", "gb_s": 1} → probe  …  gb_s 1
  sed -E 's/^\{"group": "([^"]*)", "name": "([^"]*)"(, )?/\1\t\2\t/; s/[{}"]//g; s/: / /g' "$records" |
    awk -F'\t' '{printf "%-8s %-58s %s\n", $1, $2, $3}' > "$out/table.txt"
}

finish() {
  local status=$?
  trap - EXIT
  stop_running
  if [ "$(stat -c %s "$log")" -gt 15000000 ]; then tail -c 15000000 "$log" > "$log.new" && mv "$log.new" "$log"; fi
  report
  cat "$out/table.txt"
  [ -z "${root:-}" ] || rm -rf "$root"
  say "$failed phases failed; $out/report.json"
  exit "$status"
}
