#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkinitramfs.sh MODULES OUT.cpio INIT NAME...: an initramfs of busybox, INIT and the named modules.
# MODULES is a kernel's module tree. What a module depends on comes along, and /lib/modules/order
# lists all in the order in which to load them; that is quicker than depmod over the whole tree.
# The archive is not compressed: unpacking takes longer than reading under emulation.
set -euo pipefail

tree=$1 out=$2 init=$3
shift 3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root"/{bin,dev,lib/modules,lower,newroot,proc,rw,sys}
cp /bin/busybox "$root/bin/busybox"
install -m 755 "$init" "$root/init"

# name -> file, with the underscores that the kernel uses
declare -A file_of
while read -r file; do
	name=${file##*/}
	name=${name%%.ko*}
	file_of[${name//-/_}]=$file
done < <(find "$tree" -name '*.ko*')

declare -A added
add_module() {
	local name=${1//-/_} file needed
	[ -z "${added[$name]:-}" ] || return 0
	added[$name]=1
	file=${file_of[$name]:-}
	if [ -z "$file" ]; then
		echo "mkinitramfs.sh: no module $name: it may be built in" >&2
		return 0
	fi
	for needed in $(modinfo -F depends "$file" | tr , ' '); do add_module "$needed"; done
	case $file in
	*.xz) xz -dc "$file" >"$root/lib/modules/$name.ko" ;;
	*.zst) zstd -qdc "$file" >"$root/lib/modules/$name.ko" ;;
	*) cp "$file" "$root/lib/modules/$name.ko" ;;
	esac
	echo "$name" >>"$root/lib/modules/order"
}
for name in "$@"; do add_module "$name"; done

(cd "$root" && find . | cpio -o -H newc --quiet -R 0:0) >"$out"
