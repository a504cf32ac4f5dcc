#!/usr/bin/env bash
# The whole check of a GPU in under four minutes: parity with the specification, throughput against a device copy, then
# experts measured and fitted. Needs an environment with '.[dev,cuda12]' or '.[dev,cuda13]'; PYTHON names its interpreter,
# PROFILE the profile of the GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$python" -m pytest -m gpu tests/parity/test_gpu.py tests/parity/test_gpu_timing.py -q -p no:cacheprovider
"$python" -m tests.bench.gpu_check

rows="$(mktemp -d)"
trap 'rm -rf "$rows"' EXIT
"$python" -m easybalance_sim profile measure --model qwen3-30b-a3b --repeats 10 --budget-s 30 -o "$rows/rows.csv"
"$python" -m easybalance_sim profile fit ebsim-measured "$rows/rows.csv" --profile "${PROFILE:-h200}"
