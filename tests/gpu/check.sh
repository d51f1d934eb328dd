#!/usr/bin/env bash
# What this product promises of an NVIDIA GPU, checked on one, in under 8 minutes.
#
#   tests/gpu/check.sh [PYTHON [FOLDER]]
#
# PYTHON (default: python3) already holds PyTorch; nothing is installed into it: a virtualenv in FOLDER
# (default: gpu-check) sees its packages and gets what the host side needs, from your index, or without any
# from a folder of wheels: WHEELS=folder (`pip wheel -w folder . hatchling editables` elsewhere).
# FOLDER/summary.md and summary.json hold the table.
#
# Exit codes: 0 every check passed; 1 one failed; 3 something could not be checked here (no GPU, no
# package), which the table says with the reason; 2 PYTHON has no PyTorch, or the host side cannot be installed.
# MODELS=lstm,dlrm takes a part. DEVICE=cpu goes through the same checks without a GPU, as far as they
# go: that is how they are tested.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
folder=$(realpath -m "${2:-gpu-check}")
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "check.sh: $python has no PyTorch: name a Python that has it (tests/gpu/check.sh PYTHON)" >&2
    exit 2
fi
mkdir -p "$folder"
if [ ! -x "$folder/venv/bin/matrix" ]; then
    # a venv made by a venv's Python would see the packages of neither: a path file names them
    "$python" -m venv --clear "$folder/venv"
    "$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' \
        >"$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
    if ! "$folder/venv/bin/python" -m pip install --quiet ${WHEELS:+--no-index --find-links "$WHEELS"} -e .; then
        echo "check.sh: the host side could not be installed; without an index, give WHEELS=folder" >&2
        exit 2
    fi
fi
# All checks together keep their own budget of 7 minutes; this ends what hangs in spite of it.
exec timeout --kill-after=10 475 "$folder/venv/bin/python" tests/gpu/check.py --device "${DEVICE:-cuda}" \
    ${MODELS:+--models "$MODELS"} "$folder"
