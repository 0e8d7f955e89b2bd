#!/bin/bash
# The server under OpenAI's own client. Usage: openai_sdk_test.sh path/to/quire
set -u
python3 -c 'import openai' 2>/dev/null || { echo "the openai package is not installed: skipped"; exit 77; }
. "$(dirname "$0")/serve_process.sh"
start_server "$1" models/quire-tiny
python3 "$(dirname "$0")/openai_sdk_test.py" "$base" || fail "openai_sdk_test.py"
