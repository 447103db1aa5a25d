//! The ranges of cluster IPs: written to the programs' CONFIG. Ranges that do not fit are findings of their ServiceCIDR.

use lb_abi::SERVICE_RANGES;

use super::rounds::Rounds;
use crate::{
    control::DesiredState,
    datapath::Datapath,
    findings::{Finding, Reason},
    ledger::{Origin, Subject},
    model::Kind,
    names::ObjectName,
};

impl<B: DesiredState, D: Datapath> Rounds<B, D> {
    /// Configures the programs, once the frontends in these ranges are written.
    pub(super) fn configure_service_ranges(&mut self) {
        if !self.control.synced() {
            return;
        }
        let Some(new) = self.control.desired().model().service_ranges() else {
            return;
        };
        if self.service_ranges.as_ref() == Some(&new) {
            return;
        }
        self.hooks.set_service_ranges(&new.ranges);
        let before = self.service_ranges.take().unwrap_or_default();
        for name in before.left_out.keys().chain(new.left_out.keys()) {
            let left_out = new.left_out.get(name).into_iter().flatten();
            let findings = left_out.map(|range| Finding {
                reason: Reason::ServiceRangesClipped,
                message: format!(
                    "spec.cidrs: expected at most {SERVICE_RANGES} ranges in all; {range} is not among the largest, and \
                     what no Service has there is not refused"
                ),
            });
            let subject = Subject::Object(Kind::ServiceCidr, ObjectName::new("", name.as_str()));
            self.reports
                .ledger
                .set(subject, Origin::Planned, findings.collect());
        }
        self.service_ranges = Some(new);
    }
}
