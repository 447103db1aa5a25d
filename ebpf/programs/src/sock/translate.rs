//! connect and sendmsg.

use aya_ebpf::{helpers::generated::bpf_get_current_cgroup_id, programs::SockAddrContext};
use lb_abi::{Address, Chosen, ChosenKey, Counter, FrontendKey, Service, ServiceId, SourceKey};
use lb_flow::socket::{Caller, Refusal, Target, Verdict, decide};

use super::{
    PROCEED, Return,
    context::{Family, Operation},
    fail,
    revnat::{forget, remember},
};
use crate::maps::{CHOSEN, Maps, count, count_connection};

const ECONNREFUSED: i32 = 111;

/// A client connects: TCP, or UDP that will send without naming a destination.
#[inline(always)]
pub fn connect<F: Family>(_family: F, context: &SockAddrContext) -> Return {
    translate(Operation::<F>::new(context), Hook::Connect)
}

/// A client sends a datagram and names the destination.
#[inline(always)]
pub fn sendmsg<F: Family>(_family: F, context: &SockAddrContext) -> Return {
    translate(Operation::<F>::new(context), Hook::Sendmsg)
}

/// The hooks at which a destination is chosen.
#[derive(Clone, Copy)]
enum Hook {
    Connect,
    Sendmsg,
}

/// Sends a socket operation to a backend, refuses it, or leaves it alone.
///
/// What a verdict carries is read in its own arm only: before Linux 6.3 the verifier refuses any read of stack that
/// was not written, and a copy of a verdict without a backend would be one.
#[inline(always)]
fn translate<F: Family>(operation: Operation<F>, hook: Hook) -> Return {
    let Some(destination) = operation.address() else {
        return PROCEED;
    };
    let Some(maps) = Maps::live() else { return PROCEED };
    match decide(
        &maps,
        &Socket {
            operation,
            maps,
            hook,
        },
        &destination,
    ) {
        Verdict::Pass => leave(operation, &destination, hook, hook.passed()),
        Verdict::Defer => leave(operation, &destination, hook, Counter::SocketDeferred),
        Verdict::Translate(target) => send(operation, &destination, &target, hook.translated()),
        Verdict::Kept(target) => send(operation, &destination, &target, Counter::OwnKept),
        Verdict::OwnPass => leave(operation, &destination, hook, Counter::OwnPassed),
        Verdict::Refuse(Refusal::NoBackend) => refuse(hook.refused()),
        Verdict::Refuse(Refusal::Hole) => refuse(Counter::SocketHole),
    }
}

/// Leaves a socket operation alone. A socket that is connected there talks to no frontend any more.
#[inline(always)]
fn leave<F: Family>(
    operation: Operation<F>,
    destination: &FrontendKey,
    hook: Hook,
    counter: Counter,
) -> Return {
    count(counter);
    if let Hook::Connect = hook {
        forget(operation.cookie(), destination);
    }
    PROCEED
}

#[inline(always)]
fn refuse(counter: Counter) -> Return {
    count(counter);
    fail(ECONNREFUSED)
}

/// Puts the backend in place of the destination, and notes what that was.
#[inline(always)]
fn send<F: Family>(
    operation: Operation<F>,
    destination: &FrontendKey,
    target: &Target,
    counter: Counter,
) -> Return {
    count(counter);
    count_connection(target.service, target.id);
    if remember(operation.cookie(), &target.backend, destination).is_err() {
        count(Counter::ReverseFull);
    }
    operation.rewrite(target.backend.address, target.backend.port);
    PROCEED
}

impl Hook {
    #[inline(always)]
    const fn passed(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectPassed,
            Self::Sendmsg => Counter::SendmsgPassed,
        }
    }

    #[inline(always)]
    const fn translated(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectTranslated,
            Self::Sendmsg => Counter::SendmsgTranslated,
        }
    }

    #[inline(always)]
    const fn refused(self) -> Counter {
        match self {
            Self::Connect => Counter::ConnectRefused,
            Self::Sendmsg => Counter::SendmsgRefused,
        }
    }
}

/// The socket of an operation, as decisions see it.
struct Socket<F> {
    operation: Operation<F>,
    maps: Maps,
    hook: Hook,
}

impl<F: Family> Socket<F> {
    #[inline(always)]
    fn key(&self, frontend: &FrontendKey) -> ChosenKey {
        ChosenKey {
            cookie: self.operation.cookie(),
            frontend: *frontend,
            pad: 0,
        }
    }
}

impl<F: Family> Caller for Socket<F> {
    #[inline(always)]
    fn in_node_netns(&self) -> bool {
        // 0 is no namespace's cookie.
        self.maps
            .config()
            .is_some_and(|config| config.node_netns == self.operation.netns())
    }

    #[inline(always)]
    fn netns(&self) -> u64 {
        self.operation.netns()
    }

    #[inline(always)]
    fn is_own(&self) -> bool {
        // SAFETY: no arguments, no conditions. 0 is no cgroup's id.
        let current = unsafe { bpf_get_current_cgroup_id() };
        self.maps
            .config()
            .is_some_and(|config| config.own_cgroup == current)
    }

    #[inline(always)]
    fn kept(&self, id: ServiceId) -> Option<Service> {
        self.maps.kept(id)
    }

    #[inline(always)]
    fn in_service_range(&self, address: Address) -> bool {
        self.maps.in_service_range(address)
    }

    #[inline(always)]
    fn is_clusters(&self, address: Address) -> bool {
        self.maps.admits(&SourceKey::client(SourceKey::CLUSTER, address))
    }

    #[inline(always)]
    fn is_datagram(&self) -> bool {
        matches!(self.hook, Hook::Sendmsg)
    }

    #[inline(always)]
    fn chosen(&self, frontend: &FrontendKey) -> Option<Chosen> {
        if let Hook::Connect = self.hook {
            return None;
        }
        // SAFETY: copied at once. Should the kernel give the element to another socket during this copy, as all others of a full
        // map were used since, a datagram goes to a backend of the same service port, which the caller compares.
        unsafe { CHOSEN.get(self.key(frontend)) }.copied()
    }

    #[inline(always)]
    fn keep_chosen(&self, frontend: &FrontendKey, chosen: &Chosen) {
        if let Hook::Sendmsg = self.hook {
            // No room: the next datagram chooses again.
            let _ = CHOSEN.insert(self.key(frontend), chosen, 0);
        }
    }
}
