//! A row with a packet that is cut off, or with an entry missing: whatever happens then, nothing is half rewritten and
//! nothing goes to the wrong place.
//!
//! That is so whatever is in the maps. They are filled anew when a packet has opened a flow, so that nearly every one
//! meets what the row gives.

use std::net::IpAddr;

use lb_abi::{Meta, Tuple};
use lb_loader::{Input, Run};

use super::{Mismatch, Scene, Stage, StageError};
use crate::{
    build::C_TAG,
    check::{Ends, Wrong, check, ends, mend},
    table::{Entry, Row, Step, Verdict},
};

/// The shortest frame that the kernel runs a program on: an Ethernet header and one byte.
const SHORTEST: usize = 15;
/// Of IPv4 and IPv6 it takes (since Linux 6.18) no less than a header, unless that is behind a tag.
const SHORTEST_UNTAGGED: usize = 14 + 40;

impl Stage {
    /// Plays a row with each of its packets cut off at each byte: once as if the rest had been lost, while their headers
    /// say what they said, and once as if they had been sent so. Returns how many were tried.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] if one comes out neither as it came nor whole, or not each is counted once.
    pub fn play_cut_off(&mut self, row: &Row) -> Result<usize, StageError> {
        let before = self.counted()?;
        let (mut tried, mut run) = (0, 0);
        let known = |entry: &Entry| matches!(entry, Entry::Connection(_));
        let opens = !row.given.entries.iter().any(known);
        for (index, step) in row.steps.iter().enumerate() {
            let frame = step.packet.bytes();
            let end = step.packet.network_offset() + step.packet.traffic() as usize;
            let mut scene = None;
            for length in SHORTEST..frame.len() {
                let lost = &frame[..length];
                // What came with a wrong checksum or length can't be told from what was made wrong; and of what
                // packets are padded with nothing can be sent.
                let sent = mend(lost).filter(|_| step.checked && length < end);
                for cut in [Some(lost.to_vec()), sent].into_iter().flatten() {
                    if scene.is_none() {
                        scene = Some(self.until(row, index, None)?);
                        run += index;
                    }
                    if self.cut_off(row, index, &tagged_if_short(&cut))? && opens {
                        scene = None;
                    }
                    tried += 1;
                }
            }
        }
        self.judge_counted(row, before, tried + run)?;
        Ok(tried)
    }

    /// Plays a row with each of the entries that are given missing in turn. Returns how many were tried.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] if a packet is sent to anywhere but where the row sends it, another backend that is
    /// given or the client of a flow that is given, or not each is counted once.
    pub fn play_torn(&mut self, row: &Row) -> Result<usize, StageError> {
        let before = self.counted()?;
        let (mut tried, mut run) = (0, 0);
        for missing in 0..row.given.entries.len() {
            for (index, step) in row.steps.iter().enumerate() {
                let _scene = self.until(row, index, Some(missing))?;
                let out = self.run(step, &step.packet.bytes())?;
                judge_torn(row, index, missing, &out)?;
                tried += 1;
                run += index;
            }
        }
        self.judge_counted(row, before, tried + run)?;
        Ok(tried)
    }

    /// Whether the packet was changed.
    fn cut_off(&self, row: &Row, index: usize, frame: &[u8]) -> Result<bool, StageError> {
        let step = &row.steps[index];
        let out = self.run(step, frame)?.packet;
        if out == frame {
            return Ok(false);
        }
        let whole = if step.checked {
            check(&out)
        } else {
            // All that is certain: addresses and ports are those of the row's packet.
            match (read(&out), read(&step.out.bytes())) {
                (Ok(is), Ok(should)) if is == should => Ok(()),
                (is, _) => return Err(half(row, index, frame, &is, &out).into()),
            }
        };
        match whole {
            Ok(()) => Ok(true),
            Err(wrong) => Err(half(row, index, frame, &wrong, &out).into()),
        }
    }

    /// Sets the maps, and plays the packets before one.
    fn until(&mut self, row: &Row, index: usize, without: Option<usize>) -> Result<Scene, StageError> {
        let scene = self.set_without(&row.given, without)?;
        for step in &row.steps[..index] {
            self.run(step, &step.packet.bytes())?;
        }
        Ok(scene)
    }

    fn run(&self, step: &Step, frame: &[u8]) -> Result<Run, StageError> {
        let input = Input {
            packet: frame,
            ifindex: step.device,
            own: step.own,
            gso_size: step.gso_size,
            repeat: 1,
        };
        Ok(self.detached.run(step.hook, &input)?)
    }

    /// Every packet counts once, unless the maps are of another version.
    fn judge_counted(&self, row: &Row, before: u64, packets: usize) -> Result<(), StageError> {
        let expected = if row.given.meta == Meta::CURRENT {
            packets as u64
        } else {
            0
        };
        let counted = self.counted()? - before;
        if counted == expected {
            Ok(())
        } else {
            let last = row.steps.len() - 1;
            Err(Mismatch::new(
                row,
                last,
                "number of packets that were counted",
                expected,
                counted,
            )
            .into())
        }
    }
}

fn half(row: &Row, index: usize, frame: &[u8], wrong: &dyn std::fmt::Debug, out: &[u8]) -> Box<Mismatch> {
    let what = format!("packet out, of {} bytes in,", frame.len());
    Mismatch::new(
        row,
        index,
        &what,
        "as it came, or whole",
        format_args!("{wrong:?}: {out:02x?}"),
    )
}

fn judge_torn(row: &Row, index: usize, missing: usize, run: &Run) -> Result<(), Box<Mismatch>> {
    let step = &row.steps[index];
    let input = step.packet.bytes();
    if run.packet == input || run.packet == step.out.bytes() {
        return Ok(());
    }
    let gone = row.given.entries[missing];
    let wrong = |expected: &str, found: &dyn std::fmt::Debug| {
        let what = format!("packet out, without {gone:?},");
        Mismatch::new(row, index, &what, expected, found)
    };
    if step.checked {
        check(&run.packet).map_err(|found| wrong("whole", &found))?;
    }
    let ends = |frame: &[u8]| read(frame).map_err(|found| wrong("readable", &found));
    let (is, was, should) = (ends(&run.packet)?, ends(&input)?, ends(&step.out.bytes())?);
    let answered = run.verdict == Verdict::Redirect.number() && is.destination.0 == was.source.0;
    let given = row.given.entries.iter().any(|entry| match entry {
        Entry::Backend(_, backend) => {
            *entry != gone
                && is.destination.0 == IpAddr::from(backend.address)
                && is.destination.1.is_none_or(|port| port == backend.port.get())
        }
        Entry::Connection(connection) => {
            is_of(&was, &connection.to.inverse()) && is_of(&is, &connection.forward.inverse())
        }
        _ => false,
    });
    if answered || given || is.destination == should.destination {
        return Ok(());
    }
    let expected =
        "to where the row sends it, to a backend, to a flow's client, or back to where it came from";
    Err(wrong(expected, &is))
}

/// Whether a packet with these ends has this tuple.
fn is_of(ends: &Ends, tuple: &Tuple) -> bool {
    let ports = [tuple.source_port, tuple.destination_port].map(|port| Some(port.get()));
    [ends.source.0, ends.destination.0] == [tuple.source, tuple.destination].map(IpAddr::from)
        && [ends.source.1, ends.destination.1] == ports
}

/// Addresses and ports, whatever the lengths and checksums.
fn read(frame: &[u8]) -> Result<Ends, Wrong> {
    ends(mend(frame).as_deref().unwrap_or(frame))
}

/// A frame that the kernel takes, at least behind a tag.
fn tagged_if_short(frame: &[u8]) -> Vec<u8> {
    let (link, rest) = frame.split_at(12);
    if frame.len() < SHORTEST_UNTAGGED && !rest.starts_with(&C_TAG.to_be_bytes()) {
        [link, &C_TAG.to_be_bytes(), &[0, 7], rest].concat()
    } else {
        frame.to_vec()
    }
}
