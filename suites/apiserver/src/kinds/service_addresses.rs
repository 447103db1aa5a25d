//! Service: families and ClusterIPs, which are judged before any address is given out
//! (`pkg/registry/core/service/storage/alloc.go` and ValidateServiceClusterIPsRelatedFields).

use std::net::IpAddr;

use serde_json::Value;

use super::service::{ServiceType, families_of, is_headless, service_type};
use super::service_check::NOT_AN_IP;
use crate::{config::Config, status::FieldError};

/// What must hold before addresses can be given out: upstream judges it first, and alone.
pub(crate) fn check_addresses(new: &Value, old: Option<&Value>, config: &Config) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = service_type(new);
    check_cluster_ips(new, kind, config, &mut errors);
    if errors.is_empty() {
        check_families(new, kind, config, &mut errors);
    }
    if let Some(old) = old
        && errors.is_empty()
    {
        check_update(new, old, &mut errors);
    }
    errors
}

fn check_families(service: &Value, kind: ServiceType, config: &Config, errors: &mut Vec<FieldError>) {
    if !kind.needs_cluster_ip() {
        return;
    }
    let spec = &service["spec"];
    let have = families_of(config);
    let unconfigured_is_fine = is_headless(service) && spec["selector"].is_null();
    let listed = spec["ipFamilies"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if let [first, second, ..] = listed
        && first == second
    {
        return errors.push(FieldError::duplicate("spec.ipFamilies[1]", second));
    }
    if spec["ipFamilyPolicy"] == "SingleStack" {
        for (field, what) in [
            ("ipFamilies", "multiple IP families"),
            ("clusterIPs", "multiple cluster IPs"),
        ] {
            if spec[field].as_array().is_some_and(|list| list.len() > 1) {
                let why =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when {what} are specified");
                let found = &spec["ipFamilyPolicy"];
                return errors.push(FieldError::invalid("spec.ipFamilyPolicy", found, why));
            }
        }
    }
    for (index, family) in spec["ipFamilies"].as_array().into_iter().flatten().enumerate() {
        let at = format!("spec.ipFamilies[{index}]");
        match family.as_str() {
            Some(name @ ("IPv4" | "IPv6")) => {
                if !have.contains(&name) && !unconfigured_is_fine {
                    errors.push(FieldError::invalid(at, family, "not configured on this cluster"));
                }
            }
            _ => errors.push(FieldError::unsupported(at, family, &["IPv4", "IPv6"])),
        }
    }
    if spec["ipFamilyPolicy"] == "RequireDualStack" && have.len() < 2 && !unconfigured_is_fine {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(
            "spec.ipFamilyPolicy",
            &spec["ipFamilyPolicy"],
            why,
        ));
    }
}

fn check_cluster_ips(service: &Value, kind: ServiceType, config: &Config, errors: &mut Vec<FieldError>) {
    let spec = &service["spec"];
    let (one, all) = (&spec["clusterIP"], &spec["clusterIPs"]);
    let listed = all.as_array().map(Vec::as_slice).unwrap_or_default();
    if !kind.needs_cluster_ip() || listed.is_empty() {
        return;
    }
    if one.is_null() {
        let why = "must be empty when `clusterIP` is not specified";
        return errors.push(FieldError::invalid("spec.clusterIPs", all, why));
    }
    if listed.first() != Some(one) {
        let why = "first value must match `clusterIP`";
        return errors.push(FieldError::invalid("spec.clusterIPs", all, why));
    }
    let have = families_of(config);
    if one == "None" && listed.len() > 1 {
        let why = "'None' must be the first and only value";
        errors.push(FieldError::invalid("spec.clusterIPs", all, why));
    }
    for (index, value) in listed.iter().enumerate() {
        let at = format!("spec.clusterIPs[{index}]");
        if index == 0 && value == "None" {
            if kind != ServiceType::ClusterIp {
                let name = spec["type"].as_str().unwrap_or_default();
                let why = format!("may not be set to 'None' for {name} services");
                errors.push(FieldError::invalid(at, value, why));
            }
            continue;
        }
        match value.as_str().unwrap_or_default().parse::<IpAddr>() {
            Ok(address) => {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                if !have.contains(&family) {
                    let why = format!("{family} is not configured on this cluster");
                    errors.push(FieldError::invalid(at, all, why));
                } else if let Some(wanted) = spec["ipFamilies"][index].as_str()
                    && wanted != family
                {
                    let why = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
                    errors.push(FieldError::invalid(at, value, why));
                }
            }
            Err(_) => errors.push(FieldError::invalid(at, value, NOT_AN_IP)),
        }
    }
}

fn check_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new_type, old_type) = (service_type(new), service_type(old));
    if !new_type.needs_cluster_ip() || !old_type.needs_cluster_ip() {
        return;
    }
    let (before, after) = (&old["spec"]["clusterIPs"], &new["spec"]["clusterIPs"]);
    if !before[0].is_null() && before[0] != after[0] {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            after,
            "may not change once set",
        ));
    }
    let (before, after) = (&old["spec"]["ipFamilies"], &new["spec"]["ipFamilies"]);
    if !before[0].is_null() && before[0] != after[0] {
        errors.push(FieldError::invalid(
            "spec.ipFamilies[0]",
            after,
            "may not change once set",
        ));
    }
}
