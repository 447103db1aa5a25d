//! A row with a packet that is cut off, or with an entry missing: whatever happens then, nothing is half rewritten and
//! nothing goes to the wrong place.

use std::net::IpAddr;

use lb_abi::Counter;

use super::{Mismatch, Scene, Seen, Stage, StageError};
use crate::{
    build::C_TAG,
    check::{check, ends, mend},
    table::{Entry, Row, Verdict},
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
    /// [`StageError::Mismatch`] if one comes out neither as it came nor whole.
    pub fn play_cut_off(&mut self, row: &Row) -> Result<usize, StageError> {
        let mut tried = 0;
        for (index, step) in row.steps.iter().enumerate() {
            let frame = step.packet.bytes();
            for length in SHORTEST..frame.len() {
                let lost = &frame[..length];
                self.cut_off(row, index, &tagged_if_short(lost))?;
                tried += 1;
                // What came with a wrong checksum or length can't be told from what was made wrong.
                if step.checked
                    && let Some(sent) = mend(lost)
                {
                    self.cut_off(row, index, &sent)?;
                    tried += 1;
                }
            }
        }
        Ok(tried)
    }

    fn cut_off(&mut self, row: &Row, index: usize, frame: &[u8]) -> Result<(), StageError> {
        let _scene = self.until(row, index, None)?;
        let seen = self.see(&row.steps[index], frame)?;
        self.once(row, index, &seen)?;
        if seen.packet == frame {
            return Ok(());
        }
        check(&seen.packet).map_err(|wrong| {
            let what = format!("packet out, of {} bytes in,", frame.len());
            Mismatch::new(row, index, &what, "as it came, or whole", (wrong, frame, &seen)).into()
        })
    }

    /// Plays a row with each of the entries that are given missing in turn. Returns how many were tried.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] if a packet is sent to anywhere but where the row sends it, or another backend that is
    /// given.
    pub fn play_torn(&mut self, row: &Row) -> Result<usize, StageError> {
        for missing in 0..row.given.entries.len() {
            for (index, step) in row.steps.iter().enumerate() {
                let _scene = self.until(row, index, Some(missing))?;
                let input = step.packet.bytes();
                let seen = self.see(step, &input)?;
                self.once(row, index, &seen)?;
                if seen.packet == input || seen.packet == step.out.bytes() {
                    continue;
                }
                let gone = row.given.entries[missing];
                let wrong = |expected: &str, found: &dyn std::fmt::Debug| {
                    let what = format!("packet out, without {gone:?},");
                    Mismatch::new(row, index, &what, expected, found)
                };
                if step.checked {
                    check(&seen.packet).map_err(|found| wrong("whole", &found))?;
                }
                let is = ends(&seen.packet).map_err(|found| wrong("readable", &found))?;
                let was = ends(&input).map_err(|found| wrong("readable", &found))?;
                let should = ends(&step.out.bytes()).map_err(|found| wrong("readable", &found))?;
                let answer = seen.verdict == Verdict::Redirect.number() && is.destination.0 == was.source.0;
                let backend = row.given.entries.iter().any(|entry| match entry {
                    Entry::Backend(_, backend) => {
                        *entry != gone
                            && is.destination.0 == IpAddr::from(backend.address)
                            && is.destination.1.is_none_or(|port| port == backend.port.get())
                    }
                    _ => false,
                });
                if !answer && !backend && is.destination != should.destination {
                    let expected = "to where the row says, to a backend, or back to where it came from";
                    return Err(wrong(expected, &is).into());
                }
            }
        }
        Ok(row.given.entries.len() * row.steps.len())
    }

    /// Sets the maps, and plays the packets before one.
    fn until(&mut self, row: &Row, index: usize, without: Option<usize>) -> Result<Scene, StageError> {
        let scene = self.set_without(&row.given, without)?;
        for step in &row.steps[..index] {
            self.see(step, &step.packet.bytes())?;
        }
        Ok(scene)
    }

    /// Every packet counts once, unless the maps are of another version.
    fn once(&self, row: &Row, index: usize, seen: &Seen) -> Result<(), Box<Mismatch>> {
        let times = usize::from(row.given.meta == lb_abi::Meta::CURRENT);
        let counted: &[Counter] = &seen.counted;
        if counted.len() == times {
            Ok(())
        } else {
            Err(Mismatch::new(row, index, "times that it counts", times, counted))
        }
    }
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
