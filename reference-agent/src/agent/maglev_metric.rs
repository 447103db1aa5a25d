//! Reports the size of Maglev's tables: a metric, and a log line when it changes.

use lb_abi::capacity;

use super::rounds::Rounds;
use crate::{control::DesiredState, datapath::Datapath, maglev::Scale, model::Tables};

impl<B: DesiredState, D: Datapath> Rounds<B, D> {
    /// Reports it, once all Services are known.
    pub(super) fn report_scale(&mut self) {
        let desired = self.control.desired();
        let Some(scale) = desired.scale().filter(|_| self.control.synced()) else {
            return;
        };
        let slots = i64::try_from(scale.slots_per_backend());
        let metric = self.reports.metrics.maglev.at([]);
        metric.set(slots.unwrap_or(i64::MAX));
        if scale == self.scale {
            return;
        }
        let tables = desired.model().tables();
        if scale == Scale::default() {
            tracing::info!("{}", sentence(scale, tables));
        } else {
            tracing::warn!("{}", sentence(scale, tables));
        }
        self.scale = scale;
    }
}

/// The size of the tables, the reason for it, and what follows from it.
fn sentence(scale: Scale, tables: &Tables) -> String {
    let (count, wanted, usual) = (
        tables.count(),
        tables.wanted(),
        Scale::default().slots_per_backend(),
    );
    let (half, all) = (capacity::SLOTS / 2, capacity::SLOTS);
    let why = format!(
        "Maglev's tables of {count} service ports would take {wanted} slots with {usual} for each backend, where {half} fit \
         (SLOTS has {all}, and holds each table twice while it changes)"
    );
    match scale.slots_per_backend() {
        slots if slots == usual => {
            format!("Maglev's tables of {count} service ports fit with {usual} slots for each backend again")
        }
        1 => format!(
            "{why}: each backend has one, and whenever one comes or goes, connections that pass to another node may meet \
             another backend"
        ),
        slots => {
            let percent = 100_usize.div_ceil(slots);
            format!("{why}: each backend has at least {slots}, and shares differ by up to {percent} %")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        maglev::SCALES,
        model::{Event, Model},
        testing::objects::{service, slice},
    };

    #[test]
    fn the_log_line_has_the_size_what_fits_and_what_follows() {
        let mut model = Model::default();
        model.apply(Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])));
        model.apply(Event::SliceApplied(slice(
            "t/1",
            "x",
            &["TCP 80"],
            &["1.1.1.1", "1.1.1.2"],
        )));
        let why = "Maglev's tables of 1 service ports would take 251 slots with 100 for each backend, where 131072 fit (SLOTS \
                   has 262144, and holds each table twice while it changes): each backend has ";
        assert_eq!(
            SCALES.map(|scale| sentence(scale, model.tables())),
            [
                "Maglev's tables of 1 service ports fit with 100 slots for each backend again".to_owned(),
                format!("{why}at least 25, and shares differ by up to 4 %"),
                format!("{why}at least 16, and shares differ by up to 7 %"),
                format!(
                    "{why}one, and whenever one comes or goes, connections that pass to another node may meet another backend"
                ),
            ]
        );
    }
}
