#!/bin/bash
# The server under Anthropic's own client. Usage: anthropic_sdk_test.sh path/to/quire
set -u
python3 -c 'import anthropic' 2>/dev/null || { echo "the anthropic package is not installed: skipped"; exit 77; }
. "$(dirname "$0")/serve_process.sh"
start_server "$1" models/quire-tiny
python3 "$(dirname "$0")/anthropic_sdk_test.py" "$base" || fail "anthropic_sdk_test.py"
