//! How many answers are sent in a second.

/// How many a processor has sent in the second at hand. All zero: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Limit {
    second: u32,
    sent: u32,
}

impl Limit {
    /// Nothing sent.
    pub const NEW: Self = Self { second: 0, sent: 0 };

    /// Whether one more may be sent now; it then counts. `most` of 0: no limit.
    #[inline(always)]
    pub const fn admits(&mut self, now: u32, most: u32) -> bool {
        if most == 0 {
            return true;
        }
        if self.second != now {
            self.second = now;
            self.sent = 0;
        }
        if self.sent >= most {
            return false;
        }
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_limit_are_sent_in_a_second() {
        let mut limit = Limit::default();
        for second in [0, 1, 7] {
            let sent = (0..10).filter(|_| limit.admits(second, 3)).count();
            assert_eq!(sent, 3, "second {second}");
        }
    }

    #[test]
    fn no_limit_is_no_limit() {
        let mut limit = Limit::default();
        assert!((0..1000).all(|_| limit.admits(5, 0)));
    }

    #[test]
    fn a_lower_limit_holds_at_once() {
        let mut limit = Limit::default();
        assert!(limit.admits(1, 2) && limit.admits(1, 2) && !limit.admits(1, 1));
    }
}
