//! Whose a program is.
//!
//! Ours is known: it reads a META with our magic, which the loader looks for. Everybody else's is guessed, from names
//! that any project may give, and is called a guess. Signs are counted by strength: a pinned path and a map's name are
//! chosen by the loader, a program's name likewise; the more of them agree, the more are given as reasons.

use super::report::{Map, Owner, Program, Whose};

/// What a project's programs, maps and pins are called.
struct Signature {
    whose: Whose,
    /// How program names begin.
    programs: &'static [&'static str],
    /// How map names begin.
    maps: &'static [&'static str],
    /// What paths of pins contain.
    pins: &'static [&'static str],
}

/// Names as of Cilium 1.6 to 1.19 (`bpf/bpf_sock.c`, `bpf_lxc.c`, `bpf_host.c`, `bpf_overlay.c`, `bpf_xdp.c`: `cil_…` since
/// 1.12, `sockN_…` before; `tail_…` by tail calls alone), Calico 3.31 (`felix/bpf-gpl`; its policies, which are programs named
/// after devices, by tail calls through `cali_jump…` and `xdp_cali_jump…` of `felix/bpf/jump/map.go`), systemd 258
/// (`src/core/bpf-*.c`).
const KNOWN: [Signature; 3] = [
    Signature {
        whose: Whose::Cilium,
        programs: &[
            "cil_",
            "sock4_connect",
            "sock6_connect",
            "sock4_sendmsg",
            "sock6_sendmsg",
            "sock4_recvmsg",
            "sock6_recvmsg",
            "sock4_getpeer",
            "sock6_getpeer",
            "sock4_post_bin",
            "sock6_post_bin",
        ],
        maps: &["cilium_"],
        pins: &["/cilium/", "/tc/globals/cilium_"],
    },
    Signature {
        whose: Whose::Calico,
        programs: &["calico_", "cali_"],
        maps: &["cali_", "xdp_cali_"],
        pins: &["/calico", "/tc/globals/cali_", "/tc/globals/xdp_cali_"],
    },
    Signature {
        whose: Whose::Systemd,
        programs: &["sd_fw_", "sd_bind", "sd_restrict", "sd_devices"],
        maps: &["sd_"],
        pins: &["/systemd/"],
    },
];

/// Whose a program is, that is not ours; `inside`: names of the arrays of programs that it is in.
pub(super) fn guess<'a>(
    program: &Program,
    maps: impl IntoIterator<Item = &'a Map>,
    inside: &[&str],
) -> Owner {
    let maps: Vec<&Map> = maps.into_iter().collect();
    let mut best = Owner {
        whose: Whose::Unknown,
        guess: true,
        because: Vec::new(),
    };
    for signature in &KNOWN {
        let because = signs(signature, program, &maps, inside);
        if because.len() > best.because.len() {
            best = Owner {
                whose: signature.whose,
                guess: true,
                because,
            };
        }
    }
    best
}

/// Ours.
pub(super) fn ours() -> Owner {
    Owner {
        whose: Whose::Plumbline,
        guess: false,
        because: vec!["it reads a map that begins with Plumbline's magic".to_owned()],
    }
}

fn signs(signature: &Signature, program: &Program, maps: &[&Map], inside: &[&str]) -> Vec<String> {
    let begins = |name: &str, with: &[&str]| with.iter().any(|beginning| name.starts_with(beginning));
    let mut signs = Vec::new();
    if begins(&program.name, signature.programs) {
        signs.push(format!("its name is {}", program.name));
    }
    let named: Vec<&str> = maps
        .iter()
        .map(|map| map.name.as_str())
        .filter(|name| begins(name, signature.maps))
        .collect();
    if let [first, others @ ..] = named.as_slice() {
        signs.push(match others.len() {
            0 => format!("it uses a map named {first}"),
            more => format!("it uses {} maps named {first} and the like", more + 1),
        });
    }
    let array = inside.iter().find(|name| begins(name, signature.maps));
    signs.extend(array.map(|name| format!("it is in an array of programs named {name}")));
    let pins = program
        .pinned_at
        .iter()
        .chain(maps.iter().flat_map(|map| &map.pinned_at))
        .find(|path| {
            let path = path.to_string_lossy();
            signature.pins.iter().any(|part| path.contains(part))
        });
    signs.extend(pins.map(|path| format!("{} is pinned", path.display())));
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str) -> Program {
        Program {
            id: 1,
            name: name.to_owned(),
            kind: "cgroup_sock_addr".to_owned(),
            tag: String::new(),
            loaded_at: None,
            loaded_seconds_ago: None,
            uid: 0,
            maps: Vec::new(),
            pinned_at: Vec::new(),
            held_by: Vec::new(),
            owner: ours(),
        }
    }

    fn map(name: &str, pinned_at: &[&str]) -> Map {
        Map {
            id: 1,
            name: name.to_owned(),
            kind: "hash".to_owned(),
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            pinned_at: pinned_at.iter().map(Into::into).collect(),
            held_by: Vec::new(),
            layout: None,
        }
    }

    #[test]
    fn owners_are_guessed_from_names_and_pins_and_the_reasons_are_given() {
        for (name, maps, whose) in [
            ("cil_sock4_conne", [].as_slice(), Whose::Cilium),
            ("sock4_connect", &[], Whose::Cilium),
            ("", &[map("cilium_lb4_serv", &[])], Whose::Cilium),
            ("calico_connect_", &[map("cali_v4_nat_fe3", &[])], Whose::Calico),
            ("cali_tc_main", &[], Whose::Calico),
            ("sd_fw_ingress", &[], Whose::Systemd),
            ("connect4", &[], Whose::Unknown),
            (
                "connect4",
                &[map("FRONTENDS", &["/sys/fs/bpf/other"])],
                Whose::Unknown,
            ),
            (
                "x",
                &[map("x", &["/sys/fs/bpf/tc/globals/cilium_metrics"])],
                Whose::Cilium,
            ),
        ] {
            let owner = guess(&program(name), maps, &[]);
            assert_eq!(owner.whose, whose, "{name} {maps:?}: {owner:?}");
            assert!(owner.guess, "{owner:?}");
            assert_eq!(owner.because.is_empty(), whose == Whose::Unknown, "{owner:?}");
        }
    }

    #[test]
    fn a_program_that_says_nothing_is_its_arrays() {
        for (array, whose) in [
            ("cilium_calls_00", Whose::Cilium),
            ("cali_jump3", Whose::Calico),
            ("xdp_cali_jump3", Whose::Calico),
            ("jumps", Whose::Unknown),
        ] {
            let owner = guess(&program("p4i_eth0"), &[], &[array]);
            assert_eq!(owner.whose, whose, "{array}: {owner:?}");
        }
    }

    #[test]
    fn more_signs_win() {
        let maps = [map(
            "cali_v4_nat_fe3",
            &["/sys/fs/bpf/tc/globals/cali_v4_nat_fe3"],
        )];
        let owner = guess(&program("cil_sock4_conne"), &maps, &[]);
        assert_eq!(owner.whose, Whose::Calico, "{owner:?}");
        assert_eq!(owner.because.len(), 2);
    }
}
