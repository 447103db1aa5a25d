#!/bin/sh
# rustc for the eBPF build, as cargo's RUSTC_WRAPPER.
#
# Cargo derives a crate's -Cmetadata from the absolute path of its sources if they are outside the workspace, and
# the compiler derives symbol names and orders from that. For the bpf target this replaces the value by the crate's
# name: the crates of that build have distinct names, and the object no longer depends on the folder of the build.
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
