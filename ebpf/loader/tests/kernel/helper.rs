//! A kernel that does not offer `bpf_set_retval` to these hooks.

use std::{fs::File, net::TcpStream};

use aya::{
    EbpfLoader,
    maps::{Array, HashMap},
    programs::{CgroupAttachMode, CgroupSockAddr},
};

use crate::support::{Node, isolated};

/// The object as it is embedded.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../prebuilt/plumbline.bpf.o");

/// Attaches `connect4` alone, told whether the helper is there, with one frontend and no service behind it. Returns
/// what a client sees, and the program's size after the verifier has removed what can't be reached.
fn connect(node: &Node, have_set_retval: u32) -> (Option<i32>, u32) {
    let mut object = EbpfLoader::new()
        .override_global("HAVE_SET_RETVAL", &have_set_retval, true)
        .load(OBJECT)
        .expect("the object is loaded");
    let meta = lb_abi::Meta::CURRENT;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&meta.magic);
    bytes[8..12].copy_from_slice(&meta.abi.to_ne_bytes());
    let mut map = Array::<_, [u8; 16]>::try_from(object.map_mut("META").expect("META")).expect("an array");
    map.set(0, bytes, 0).expect("META is written");
    // ::ffff:10.96.0.1, port 80, TCP.
    let mut key = [0; 20];
    key[10..12].fill(0xff);
    key[12..16].copy_from_slice(&Node::CLUSTER_IP.octets());
    key[16..19].copy_from_slice(&[0, 80, 6]);
    let mut map = HashMap::<_, [u8; 20], [u8; 16]>::try_from(object.map_mut("FRONTENDS").expect("FRONTENDS"))
        .expect("a map");
    // Both of its service ports are 1.
    map.insert(key, [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0)
        .expect("the frontend is put");
    let program: &mut CgroupSockAddr = object
        .program_mut("connect4")
        .expect("connect4")
        .try_into()
        .expect("a socket program");
    program.load().expect("connect4 is accepted");
    let size = program
        .info()
        .expect("its description")
        .size_translated()
        .expect("a size");
    let cgroup = File::open(&node.options.cgroup).expect("the cgroup");
    program
        .attach(cgroup, CgroupAttachMode::Single)
        .expect("attached");
    let seen = TcpStream::connect((Node::CLUSTER_IP, 80)).expect_err("nothing is behind it");
    (seen.raw_os_error(), size)
}

#[test]
fn without_the_helper_clients_are_refused_with_eperm_and_the_call_is_gone() {
    isolated(|node| {
        let (with, size_with) = connect(node, 1);
        let (without, size_without) = connect(node, 0);
        assert_eq!(with, Some(libc::ECONNREFUSED));
        assert_eq!(without, Some(libc::EPERM));
        assert!(
            size_without < size_with,
            "{size_without} bytes without the call, {size_with} with it"
        );
    });
}
