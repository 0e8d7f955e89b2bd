# For test scripts: starts `quire serve` on a free port, waits until it is ready, stops it at the end.
# Usage: . tests/e2e/serve_process.sh; start_server QUIRE MODEL [flags…]; then $base, $server_pid, $log.

log=$(mktemp)
server_pid=

stop_server() {
  [ -n "$server_pid" ] && kill -TERM "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
  server_pid=
}
trap 'status=$?; stop_server; rm -f "$log" "$log.out"; exit $status' EXIT

start_server() {
  "$1" serve "$2" --host 127.0.0.1 --port 0 "${@:3}" >"$log.out" 2>"$log" &
  server_pid=$!
  for _ in $(seq 600); do
    base=$(grep -o 'http://127.0.0.1:[0-9]*' "$log.out" | head -1)
    [ -n "$base" ] && return 0
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "the server did not start:" >&2
  cat "$log" >&2
  exit 1
}

fail() {
  echo "FAILED: $*" >&2
  cat "$log" >&2
  exit 1
}
