#!/bin/sh
# rustc for the eBPF build, as cargo's RUSTC_WRAPPER.
#
# Cargo derives a crate's -Cmetadata from the absolute path of its sources where they lie outside the workspace,
# and from it the compiler derives symbol names and orders. For the bpf target this puts the crate's name in its
# place: the crates of that build have distinct names, and the object no longer knows where it was built.
name='' bpf=''
for argument; do
    [ "${previous-}" = --crate-name ] && name=$argument
    case $argument in *bpfel-unknown-none*) bpf=yes ;; esac
    previous=$argument
done
if [ -n "$bpf" ] && [ -n "$name" ]; then
    for argument; do
        shift
        case $argument in
        metadata=*) argument=metadata=plumbline-$name ;;
        -Cmetadata=*) argument=-Cmetadata=plumbline-$name ;;
        esac
        set -- "$@" "$argument"
    done
fi
exec "$@"
