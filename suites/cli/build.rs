//! Links development builds at fixed addresses.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Each client of a case is a process, thousands in a run. A development build has 310,000 relocations for a loader to do at
    // each start, which touches 1,000 pages and takes longer than all that most of them do. What is shipped is optimised, has
    // far fewer, and is linked as its target has it. So is a static build, whose start-up code is chosen apart from this: it
    // moves the program, and crashes where it cannot. (`cargo xtask e2e` has that chosen too, with its relocation model.)
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_static = env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|one| one == "crt-static"));
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
