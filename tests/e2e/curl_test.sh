#!/bin/bash
# What a user does first, with curl alone: serve the shipped model, ask it, watch it stop.
# Usage: curl_test.sh path/to/quire
set -u
. "$(dirname "$0")/serve_process.sh"
command -v curl >/dev/null || { echo "no curl here: skipped"; exit 77; }
quire=$1

"$quire" version | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+' || fail "quire version"
"$quire" --help | grep -q serve || fail "quire --help"
"$quire" serve --help | grep -q -- --max-model-len || fail "quire serve --help"
"$quire" serve 2>/dev/null && fail "serve without a model must not succeed"
"$quire" serve models/quire-tiny --no-such-flag 2>/dev/null && fail "an unknown flag must be refused"
"$quire" serve /no/such/folder 2>/dev/null && fail "a folder that is not there must be refused"

start_server "$quire" models/quire-tiny
grep -q 'curl -N' "$log.out" || fail "the curl line"

ask='{"model": "quire-tiny", "temperature": 0, "messages": [{"role": "user", "content": "What is 12 + 7?"}]'
json='Content-Type: application/json'
curl -fsS "$base/health" || fail "/health"
answer=$(curl -fsS "$base/v1/chat/completions" -H "$json" -d "$ask}") || fail "chat"
echo "$answer" | grep -q '19' || fail "12 + 7: $answer"
stream=$(curl -fsSN "$base/v1/chat/completions" -H "$json" -d "$ask, \"stream\": true}") || fail "stream"
echo "$stream" | head -1 | grep -q '"role":"assistant"' || fail "first event: $stream"
echo "$stream" | grep -q '"finish_reason":"stop"' || fail "finish: $stream"
[ "$(echo "$stream" | grep -c '^data: \[DONE\]$')" = 1 ] || fail "[DONE]: $stream"
models=$(curl -fsS "$base/v1/models")
echo "$models" | grep -q '"id":"quire-tiny"' || fail "/v1/models"
metrics=$(curl -fsS "$base/metrics")
echo "$metrics" | grep -q '^vllm:request_success_total{.*finished_reason="stop".*} 2$' || fail "/metrics"
[ "$(curl -sS -o /dev/null -w '%{http_code}' "$base/v1/chat/completions" -H "$json" -d '{')" = 400 ] || fail "malformed"
[ "$(curl -sS -o /dev/null -w '%{http_code}' "$base/nothing")" = 404 ] || fail "unknown path"

kill -TERM "$server_pid"
wait "$server_pid" || fail "SIGTERM must end with 0, got $?"
server_pid=
grep -q server.stopped "$log" || fail "the log's last line"
echo "curl_test: ok"
