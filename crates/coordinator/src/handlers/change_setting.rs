//! Changes one setting of the cluster and answers with all of them. The call returns when the change is durable; agents
//! learn of it with their next heartbeats.

use std::sync::Arc;

use kintsu_wire::message::{ChangeSetting, Settings};

use crate::cluster::Cluster;
use crate::engine::settings::{self, FloorAboveCeiling};
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, change: ChangeSetting) -> Result<Settings> {
    let worker = cluster.clone();
    let record = move |meta: &crate::meta::Meta| {
        let settings =
            meta.change_settings(|settings| settings::changed(settings, change).map_err(refusal))?;
        worker.give_way().set(settings);
        Ok(settings)
    };
    cluster.meta.off(record).await
}

fn refusal(FloorAboveCeiling { floor, ceiling }: FloorAboveCeiling) -> CoordinatorError {
    CoordinatorError::Invalid {
        what: "limits of repairs",
        expected: "repair.min-rate at most repair.max-rate".into(),
        got: format!("{floor} and {ceiling} bytes a second: change the other one first"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::handlers;
    use crate::handlers::tests::{cluster, reopen};

    #[tokio::test]
    async fn a_setting_is_checked_told_and_kept() {
        let (dir, cluster) = cluster(4, 2).await;
        let defaults = handlers::settings::handle(&cluster).await.unwrap();
        assert_eq!(defaults, Settings::default());
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        let settings = handle(&cluster, ChangeSetting::RepairMaxRate(Some(rate(20_000_000)))).await.unwrap();
        assert_eq!(settings.repair_max_rate, Some(rate(20_000_000)));
        assert_eq!(cluster.give_way().rate(), Some(rate(20_000_000)), "in force at once");
        let wrong = handle(&cluster, ChangeSetting::RepairMinRate(rate(30_000_000))).await.unwrap_err();
        assert!(wrong.to_string().contains("at most repair.max-rate"), "{wrong}");
        let target = NonZeroU32::new(20);
        let settings = handle(&cluster, ChangeSetting::RepairTarget(target)).await.unwrap();
        assert_eq!((settings.repair_target, settings.repair_max_rate), (target, Some(rate(20_000_000))));
        cluster.close().await.unwrap();
        let cluster = reopen(&dir);
        assert_eq!(handlers::settings::handle(&cluster).await.unwrap(), settings, "after a restart");
    }
}
