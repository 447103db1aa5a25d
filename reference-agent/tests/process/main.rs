//! The agent as a process: the unmodified program, from outside.
//!
//! ```text
//! place ── a process, network namespace, bpffs and cgroup for each test
//!   ├─ control   an API server; the world that the agent is told of
//!   ├─ kube_api  a real one, where its programs are
//!   ├─ node      starts agents there, asks /readyz, dumps, lists pins and programs
//!   │    └─ trace   stops an agent at its N-th step, and kills it
//!   ├─ clients   servers that answer with their number, clients that record the answers
//!   └─ flows     connections and sockets that last; some of them in a pod
//! ```
//!
//! | file | what is shown |
//! |---|---|
//! | `killed` | killed at any step, the next agent ends in the planned state and no client notices |
//! | `manifests` | `deploy/` says what the program takes, and agrees with itself |
//! | `alone` | the programs as they are shipped need nothing of the machine but its kernel |
//! | `capabilities` | those of the manifest are enough, and each is needed |
//! | `rbac` | the rules of the ClusterRole are what it needs |
//! | `real_api` | a real kube-apiserver takes the manifests, and with them the agent does all that it does |
//! | `seccomp` | under the profile it does all that it does |
//! | `load` | restarted under load, it loses no connection and no datagram |

mod alone;
mod authorizer;
mod capabilities;
mod clients;
mod control;
mod flows;
mod killed;
mod kube_api;
mod load;
mod manifest;
mod manifests;
mod node;
mod place;
mod pod;
mod rbac;
mod real_api;
mod seccomp;
mod trace;
mod world;
