//! Prints the maps.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use axum::body::{Body, to_bytes};
use clap::Args;
use http::{Request, StatusCode};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::Bpffs;
use crate::{
    dump,
    maps::kernel,
    status::{ANSWER_LIMIT, MAPS_AT},
};

/// Most bytes of an agent's dump: full maps are a tenth of it.
const LONGEST: usize = 1 << 30;

/// The maps to print.
#[derive(Debug, Args)]
pub struct Dump {
    #[command(flatten)]
    bpffs: Bpffs,
    /// Address of the agent of these maps, if one runs
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9440")]
    listen: SocketAddr,
}

pub(super) fn dump(Dump { bpffs, listen }: &Dump) -> anyhow::Result<()> {
    let Bpffs { bpffs } = bpffs;
    let here = bpffs.display().to_string();
    let text = match from_agent(*listen, &here) {
        Ok(text) => {
            eprintln!("from the agent at {listen}");
            text
        }
        Err(why) => {
            eprintln!("from the maps that are pinned at {here}: {why:#}");
            dump::dump(&kernel::pinned_contents(&lb_loader::read_pinned(bpffs)?)?)
        }
    };
    print!("{text}");
    Ok(())
}

/// The dump of the agent at an address, if it has the wanted maps.
#[tokio::main(flavor = "current_thread")]
async fn from_agent(listen: SocketAddr, here: &str) -> anyhow::Result<String> {
    const CONNECT: Duration = Duration::from_secs(1);
    let connected = tokio::time::timeout(CONNECT, tokio::net::TcpStream::connect(listen)).await;
    connected
        .map_err(anyhow::Error::from)
        .and_then(|connected| connected.map_err(anyhow::Error::from))
        .with_context(|| format!("no agent listens at {listen}"))?;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("http://{listen}/dump")).body(Body::empty())?;
    let answer = tokio::time::timeout(ANSWER_LIMIT, async {
        let response = client.request(request).await?;
        let (parts, body) = response.into_parts();
        anyhow::Ok((parts, to_bytes(Body::new(body), LONGEST).await?))
    });
    let (parts, body) = answer
        .await
        .with_context(|| format!("the agent at {listen} gave no answer"))??;
    let text = String::from_utf8(body.to_vec())?;
    let place = parts.headers.get(MAPS_AT).and_then(|place| place.to_str().ok());
    anyhow::ensure!(place == Some(here), "what listens at {listen} has other maps");
    anyhow::ensure!(
        parts.status == StatusCode::OK,
        "the agent at {listen} says: {}",
        text.trim_end()
    );
    Ok(text)
}
