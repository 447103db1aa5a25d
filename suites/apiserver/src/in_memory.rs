//! A server for clients of the same process: the same requests, answers and faults, without connections, so that time may be simulated,
//! and thousands of runs fit into a minute.

use std::{
    error::Error,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Body, Frame},
};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Auth,
    faults::Faults,
    http::{self, Api},
    store::Store,
};

/// One server. What it is answering breaks off when it is dropped.
pub struct InMemory {
    store: Store,
    auth: Arc<Auth>,
    faults: Faults,
    /// While it runs.
    running: Mutex<Option<Running>>,
}

struct Running {
    api: Api,
    ended: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl InMemory {
    /// A server that runs.
    #[must_use]
    pub fn new(store: Store, auth: Auth, faults: Faults) -> Self {
        let server = Self {
            store,
            auth: Arc::new(auth),
            faults,
            running: Mutex::default(),
        };
        server.start();
        server
    }

    /// Answers a request from this address.
    ///
    /// # Errors
    /// The server does not run, or ends before the answer begins. If it ends later, the answer's body breaks off.
    pub async fn answer<B>(
        &self,
        request: Request<B>,
        source: IpAddr,
    ) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let (api, ended) = {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let running = running.as_ref().ok_or(io::ErrorKind::ConnectionRefused)?;
            (running.api.clone(), running.ended.clone())
        };
        let answer = tokio::select! {
            biased;
            () = ended.cancelled() => return Err(io::ErrorKind::ConnectionReset.into()),
            answer = api.answer(http::sent(request), source) => answer,
        };
        Ok(answer.map(|body| StreamBody::new(until(ended, BodyStream::new(body))).boxed_unsync()))
    }

    /// Ends all answers, and refuses further requests.
    pub fn kill(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Starts it again.
    pub fn start(&self) {
        let ended = CancellationToken::new();
        let (store, auth, faults) = (self.store.clone(), Arc::clone(&self.auth), self.faults.clone());
        let running = Running {
            // It never shuts down in order: it is killed.
            api: Api::new(store, auth, faults, CancellationToken::new(), ended.clone()),
            ended,
        };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }
}

/// What comes of a body until the server ends, which is an error.
fn until<S>(ended: CancellationToken, body: S) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send
where
    S: Stream<Item = io::Result<Frame<Bytes>>> + Unpin + Send,
{
    futures::stream::unfold(Some((ended, body)), |going_on| async {
        let (ended, mut body) = going_on?;
        tokio::select! {
            biased;
            () = ended.cancelled() => Some((Err(io::ErrorKind::ConnectionReset.into()), None)),
            frame = body.next() => frame.map(|frame| (frame, Some((ended, body)))),
        }
    })
}
