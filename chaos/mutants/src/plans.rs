//! Mutants whose bug is in their plans: what a simulation without a kernel can have.

use reference_agent::control::{DesiredState, Planner};

use crate::{
    Mutant,
    addresses_removed::AddressesRemoved,
    affinity_misread::{AffinityMisread, MisreadsAffinity},
    balancers_owned::BalancersOwned,
    changed_anew::ChangedAnew,
    conditions_misread::{ConditionsMisread, Misread},
    empty_left_out::EmptyLeftOut,
    endpoints_kept::{EndpointsKept, KeptEndpoints},
    endpoints_left_out::{EndpointsLeftOut, LeftOut},
    external_frontends::{Depends, ExternalFrontends},
    frontends_added::{Added, FrontendsAdded},
    gateway::{self, Gateway},
    hints_misread::{self, HintsMisread},
    host_once::HostOnce,
    kubernetes_left_out::KubernetesLeftOut,
    last_slice_wins::LastSliceWins,
    locked_out::LockedOut,
    missed_changes::{Missed, MissedChanges},
    node_ports_taken::NodePortsTaken,
    oldest_displaced::OldestDisplaced,
    one_way::OneWay,
    policies_misread::{self, PoliciesMisread},
    ports_confused::{Confused, PortsConfused},
    ranges_unknown::RangesUnknown,
    refill_doubled::RefillDoubled,
    refill_ignored::RefillIgnored,
    replanned::{self, Replanned},
    restored_by_prefix::RestoredByPrefix,
    rewritten_ignored::RewrittenIgnored,
    slices_by_name::SlicesByName,
    slices_misread::{Misreading, SlicesMisread},
    terminating_healthy::TerminatingHealthy,
    unasked::{Unasked, WithUnasked},
    wide_release::WideRelease,
};

/// Makes the plans of an agent, of what the production agent's planner is.
pub type Plans = fn(Planner) -> Box<dyn DesiredState>;

impl Mutant {
    /// Its plans, if its bug is in nothing else.
    #[expect(clippy::too_many_lines, reason = "one line for each mutant")]
    pub fn plans(self) -> Option<Plans> {
        let plans: Plans = match self {
            Self::PrefixRelease => |planner| Box::new(WideRelease::by_prefix(planner)),
            Self::JoinedKeyRelease => |planner| Box::new(WideRelease::by_joined_key(planner)),
            Self::NameAloneRelease => |planner| Box::new(WideRelease::by_name_alone(planner)),
            Self::AddressRelease => |planner| Box::new(WideRelease::by_address(planner)),
            Self::OutsideRelease => |planner| Box::new(WideRelease::by_prefix_outside(planner)),
            Self::LastSliceWins => |planner| Box::new(LastSliceWins::new(planner)),
            Self::RefillIgnored => |planner| Box::new(RefillIgnored::new(planner)),
            Self::RefillDoubled => |planner| Box::new(RefillDoubled::new(planner)),
            Self::RewrittenIgnored => |planner| Box::new(RewrittenIgnored::new(planner)),
            Self::RestoredByPrefix => |planner| Box::new(RestoredByPrefix::new(planner)),
            Self::KubernetesRefillIgnored => |planner| Box::new(RefillIgnored::of_kubernetes(planner)),
            Self::KubernetesLeftOut => |planner| Box::new(KubernetesLeftOut(planner)),
            Self::EmptiedKept => |planner| Box::new(EndpointsKept::new(planner, KeptEndpoints::Emptied)),
            Self::LeftKept => |planner| Box::new(EndpointsKept::new(planner, KeptEndpoints::Left)),
            Self::EmptyLeftOut => |planner| Box::new(EmptyLeftOut::new(planner)),
            Self::LockedOut => |planner| Box::new(LockedOut::new(planner)),
            Self::OneWay => |planner| Box::new(OneWay(planner)),
            Self::UnreadyServed => |planner| Box::new(ConditionsMisread::new(planner, Misread::Unready)),
            Self::DrainingPreferred => |planner| Box::new(ConditionsMisread::new(planner, Misread::Draining)),
            Self::TerminatingLeftOut => {
                |planner| Box::new(ConditionsMisread::new(planner, Misread::Terminating))
            }
            Self::StoppedServed => |planner| Box::new(ConditionsMisread::new(planner, Misread::Stopped)),
            Self::ReturningIgnored => |planner| Box::new(ConditionsMisread::new(planner, Misread::Returning)),
            Self::AffinityIgnored => {
                |planner| Box::new(MisreadsAffinity::new(planner, AffinityMisread::Ignored))
            }
            Self::AffinityEndless => {
                |planner| Box::new(MisreadsAffinity::new(planner, AffinityMisread::Endless))
            }
            Self::AffinityLoyal => |planner| Box::new(MisreadsAffinity::new(planner, AffinityMisread::Loyal)),
            Self::NodesOwnLeftOut => |planner| Box::new(EndpointsLeftOut::new(planner, LeftOut::OfThisNode)),
            Self::AloneByUdpLeftOut => {
                |planner| Box::new(EndpointsLeftOut::new(planner, LeftOut::AloneByUdp))
            }
            Self::NodelessLeftOut => |planner| Box::new(EndpointsLeftOut::new(planner, LeftOut::WithoutNode)),
            Self::ProtocolsConfused => |planner| Box::new(PortsConfused::new(planner, Confused::Protocols)),
            Self::FamiliesConfused => |planner| Box::new(PortsConfused::new(planner, Confused::Families)),
            Self::SecondFamilyLeftOut => {
                |planner| Box::new(PortsConfused::new(planner, Confused::SecondFamily))
            }
            Self::FrontendsCrossed => |planner| Box::new(FrontendsAdded::new(planner, Added::Crossed)),
            Self::BackendsProxied => |planner| Box::new(FrontendsAdded::new(planner, Added::AtBackends)),
            Self::LocalUnasked => |planner| Box::new(WithUnasked::new(planner, Unasked::Local)),
            Self::AffinityUnasked => |planner| Box::new(WithUnasked::new(planner, Unasked::Affinity)),
            Self::NodePortsTaken => |planner| Box::new(NodePortsTaken(planner)),
            Self::BalancersOwned => |planner| Box::new(BalancersOwned(planner)),
            Self::HostOnce => |planner| Box::new(HostOnce::new(planner)),
            Self::DeletedServiceKept => |planner| Box::new(MissedChanges::new(planner, Missed::Deletion)),
            Self::FormerPortsKept => |planner| Box::new(MissedChanges::new(planner, Missed::FormerPorts)),
            Self::OrphanedSlicesKept => {
                |planner| Box::new(MissedChanges::new(planner, Missed::OrphanedSlices))
            }
            Self::RangesKept => |planner| Box::new(MissedChanges::new(planner, Missed::Ranges)),
            Self::BalancersKept => |planner| Box::new(MissedChanges::new(planner, Missed::Balancers)),
            Self::ExternalWithBackend => {
                |planner| Box::new(ExternalFrontends::new(planner, Depends::LocalBackend))
            }
            Self::ExternalWithNodePort => {
                |planner| Box::new(ExternalFrontends::new(planner, Depends::NodePort))
            }
            Self::AddressesRemoved => |planner| Box::new(AddressesRemoved::new(planner)),
            Self::TerminatingHealthy => |planner| Box::new(TerminatingHealthy(planner)),
            Self::ChangedAnew => |planner| Box::new(ChangedAnew::new(planner)),
            Self::InternalPolicyIgnored => |planner| {
                Box::new(PoliciesMisread::new(
                    planner,
                    policies_misread::Misread::InternalIgnored,
                ))
            },
            Self::ExternalPolicyIgnored => |planner| {
                Box::new(PoliciesMisread::new(
                    planner,
                    policies_misread::Misread::ExternalIgnored,
                ))
            },
            Self::PoliciesCoupled => {
                |planner| Box::new(PoliciesMisread::new(planner, policies_misread::Misread::Coupled))
            }
            Self::PoliciesOnce => {
                |planner| Box::new(PoliciesMisread::new(planner, policies_misread::Misread::Once))
            }
            Self::ExternalPolicyInside => |planner| {
                Box::new(PoliciesMisread::new(
                    planner,
                    policies_misread::Misread::ExternalInside,
                ))
            },
            Self::LocalSourceLost => |planner| {
                Box::new(PoliciesMisread::new(
                    planner,
                    policies_misread::Misread::SourceLost,
                ))
            },
            Self::HintsIgnored => {
                |planner| Box::new(HintsMisread::new(planner, hints_misread::Misread::Ignored))
            }
            Self::PartialHintsCounted => {
                |planner| Box::new(HintsMisread::new(planner, hints_misread::Misread::PartialCounted))
            }
            Self::UnreadyHintsCounted => {
                |planner| Box::new(HintsMisread::new(planner, hints_misread::Misread::UnreadyCounted))
            }
            Self::SlicesByName => |planner| Box::new(SlicesByName::new(planner)),
            Self::SlicesOfAnyNamespace => {
                |planner| Box::new(SlicesMisread::new(planner, Misreading::AnyNamespace))
            }
            Self::SlicesByOwnName => |planner| Box::new(SlicesMisread::new(planner, Misreading::OwnName)),
            Self::FirstLabelKept => |planner| Box::new(SlicesMisread::new(planner, Misreading::FirstLabel)),
            Self::PortsByNumber => |planner| Box::new(SlicesMisread::new(planner, Misreading::PortNumber)),
            Self::FirstNumberForAll => {
                |planner| Box::new(SlicesMisread::new(planner, Misreading::FirstNumber))
            }
            Self::NullPortsServed => |planner| Box::new(SlicesMisread::new(planner, Misreading::NoPorts)),
            Self::ServingDecides => |planner| Box::new(SlicesMisread::new(planner, Misreading::Serving)),
            Self::LastEntryWins => |planner| Box::new(SlicesMisread::new(planner, Misreading::LastEntry)),
            Self::LastAddressWins => |planner| Box::new(SlicesMisread::new(planner, Misreading::LastAddress)),
            Self::LeftOneLeftAll => |planner| Box::new(SlicesMisread::new(planner, Misreading::LeftOne)),
            Self::TargetPortsServed => {
                |planner| Box::new(Replanned::new(planner, replanned::target_ports_served))
            }
            Self::BalancersUnreserved => {
                |planner| Box::new(Replanned::new(planner, replanned::balancers_unreserved))
            }
            Self::SilentOutside => |planner| Box::new(Replanned::new(planner, replanned::silent_outside)),
            Self::ClosedPortsDropped => {
                |planner| Box::new(Replanned::new(planner, replanned::closed_ports_dropped))
            }
            Self::OldestDisplaced => |planner| Box::new(OldestDisplaced::new(planner)),
            Self::EmptyAnswered => {
                |planner| Box::new(Gateway::new(EmptyLeftOut::new(planner), gateway::to_this_node()))
            }
            Self::DeadAnswered => {
                |planner| Box::new(Gateway::new(RangesUnknown(planner), gateway::to_this_node()))
            }
            Self::PrefixReleaseSlicesByName => {
                |planner| Box::new(SlicesByName::new(WideRelease::by_prefix(planner)))
            }
            _ => return None,
        };
        Some(plans)
    }
}
