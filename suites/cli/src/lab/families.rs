//! `--ipv6` and `--dual`: the address families of a lab that is made.

use lab::IpFamilies;

/// Which families; IPv4 alone without an option.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct FamilyArgs {
    /// All addresses are IPv6's: nodes, pods, Services, the API server
    #[arg(long, conflicts_with = "dual")]
    ipv6: bool,
    /// Both families, IPv4 first
    #[arg(long)]
    dual: bool,
}

impl FamilyArgs {
    /// What they say.
    pub(crate) fn families(self) -> IpFamilies {
        match self {
            Self { dual: true, .. } => IpFamilies::Dual,
            Self { ipv6: true, .. } => IpFamilies::Ipv6,
            Self { .. } => IpFamilies::Ipv4,
        }
    }

    /// As options of the command line.
    pub(crate) fn options(self) -> &'static str {
        match self.families() {
            IpFamilies::Ipv4 => "",
            IpFamilies::Ipv6 => " --ipv6",
            IpFamilies::Dual => " --dual",
        }
    }
}
