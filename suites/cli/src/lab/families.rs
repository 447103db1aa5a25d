//! `--ipv6` and `--dual`: the address families of a new lab.

use lab::IpFamilies;

/// Address families; IPv4 only without an option.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Address families of a new lab or kind cluster")]
pub(crate) struct FamilyArgs {
    /// Use IPv6 only: for nodes, pods, Services and API servers
    #[arg(long, conflicts_with = "dual")]
    ipv6: bool,
    /// Use both families, IPv4 first
    #[arg(long)]
    dual: bool,
}

impl FamilyArgs {
    /// The chosen families.
    pub(crate) fn families(self) -> IpFamilies {
        match self {
            Self { dual: true, .. } => IpFamilies::Dual,
            Self { ipv6: true, .. } => IpFamilies::Ipv6,
            Self { .. } => IpFamilies::Ipv4,
        }
    }

    /// The options as text for the command line.
    pub(crate) fn options(self) -> &'static str {
        match self.families() {
            IpFamilies::Ipv4 => "",
            IpFamilies::Ipv6 => " --ipv6",
            IpFamilies::Dual => " --dual",
        }
    }
}
