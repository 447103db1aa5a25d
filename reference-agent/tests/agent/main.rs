//! The control plane, from API objects to map contents.

mod adoption;
mod configuring;
mod departing;
mod devices;
mod dumps;
mod failures;
mod from_files;
mod health_checking;
mod hooking;
mod idle_folder;
mod incident_one;
mod kernel;
mod law;
mod place;
mod posting;
mod probing;
mod reconciling;
mod recordings;
mod reflecting;
mod reporting;
mod running;
mod sockets;
mod streaming;
mod unlisted;
mod whole;
mod writes;
