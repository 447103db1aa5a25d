//! A model of the maps, for tests.
