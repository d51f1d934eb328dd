#!/bin/sh
# Makes the virtualenv of an image, /opt/matrix, inside the build stage. Everything it needs lies in
# this folder; nothing of it is copied into the image itself.
#
#   pip.whl        pip, run from its archive: the image gets none
#   wheels/        every package, chosen and downloaded on the host (offline: no index, no network)
#   steps          else, pip's arguments, one install a line (index: needs a network)
#   pip.conf       the index to use then, without credentials; ca.pem: certificates to trust besides
#   import         the package that has to be importable in the end
set -eu
cd "$(dirname "$0")"

python3 -m venv --without-pip /opt/matrix
pip() {
    python3 pip.whl/pip --python /opt/matrix/bin/python install \
        --no-compile --no-cache-dir --disable-pip-version-check --progress-bar off --root-user-action ignore "$@"
}

if [ -d wheels ]; then
    PIP_CONFIG_FILE=/dev/null pip --no-index --no-deps wheels/*.whl
else
    export PIP_CONFIG_FILE="$PWD/pip.conf"
    while read -r step; do
        # shellcheck disable=SC2086  # a step is several arguments
        pip $step
    done < steps
fi

echo "compiling bytecode"
/opt/matrix/bin/python -I -m compileall -qq -j 0 -x '[/]tests?[/]' /opt/matrix/lib || true
if [ -s import ]; then
    read -r package < import
    echo "importing $package"
    /opt/matrix/bin/python -I -c "import $package"
fi

# A name for the user of the worker: some libraries ask for it.
echo 'matrix:x:10001:10001:worker:/tmp:/usr/sbin/nologin' >> /etc/passwd
echo 'matrix:x:10001:' >> /etc/group
