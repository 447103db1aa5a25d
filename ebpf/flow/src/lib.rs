//! Pure datapath decisions.
