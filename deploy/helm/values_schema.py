"""values.schema.json: what Helm checks the values against."""

from typing import Any

from deploy.helm.settings_schema import secret_keys_schema, settings_schema

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_NAME: Json = {"type": "string", "minLength": 1}
_SWITCH: Json = {"type": "boolean"}
_FREE: Json = {"type": "object"}
_LIST: Json = {"type": "array"}
_PORT: Json = {"type": "integer", "minimum": 1, "maximum": 65535}
_ROLES = ("trigger", "connector", "recorder")
_PLACEMENT: Json = {
    "nodeSelector": _FREE,
    "tolerations": _LIST,
    "affinity": _FREE,
    "priorityClassName": _TEXT,
}


def values_schema() -> Json:
    """The whole of it. Nothing but what is named here is accepted."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart proximity",
        **_object(
            {
                "global": _FREE,
                "image": _object(
                    {
                        "repository": _NAME,
                        "tag": _TEXT,
                        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
                    }
                ),
                "imagePullSecrets": _LIST,
                "settings": settings_schema(),
                "secrets": _object(
                    {"name": _NAME, "checksum": _TEXT, "keys": secret_keys_schema()}
                ),
                "tls": _object({"secretName": _TEXT}),
                "roles": _object({name: _part("keda") for name in _ROLES}, all_required=True),
                "interface": _interface(),
                "keda": _object({"prometheus": _TEXT}),
                "migrations": _object({"enabled": _SWITCH, "deadlineSeconds": _least(1)}),
                "disruptionBudget": _object(
                    {
                        "enabled": _SWITCH,
                        "maxUnavailable": {"type": ["integer", "string"], "minimum": 0},
                    }
                ),
                "spread": _object(
                    {
                        "topologyKey": _NAME,
                        "whenUnsatisfiable": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
                    }
                ),
                "terminationGracePeriodSeconds": _least(1),
                **_PLACEMENT,
                "podAnnotations": _FREE,
                "podLabels": _FREE,
                "serviceAccount": _object({"create": _SWITCH, "name": _TEXT, "annotations": _FREE}),
                "extraEnv": _LIST,
                "extraVolumes": _LIST,
                "extraVolumeMounts": _LIST,
                "networkPolicy": _network_policy(),
                "monitoring": _monitoring(),
                "topics": _topics(),
            }
        ),
    }


def _part(*more_kinds: str) -> Json:
    autoscaling = {
        "kind": {"enum": ["none", "cpu", *more_kinds]},
        "min": _least(1),
        "max": _least(1),
        "cpu": {"type": "integer", "minimum": 1, "maximum": 100},
    }
    if more_kinds:
        autoscaling["lag"] = _least(1)
    part = {"replicas": _least(0), "resources": _FREE, "autoscaling": _object(autoscaling)}
    return _object(part | _PLACEMENT)


def _interface() -> Json:
    of_all = _part()["properties"]
    service = {
        "type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
        "port": _PORT,
        "annotations": _FREE,
    }
    ingress = {
        "enabled": _SWITCH,
        "className": _TEXT,
        "host": _TEXT,
        "tlsSecretName": _TEXT,
        "annotations": _FREE,
    }
    return _object({**of_all, "service": _object(service), "ingress": _object(ingress)})


def _network_policy() -> Json:
    return _object(
        {
            "enabled": _SWITCH,
            "serverPorts": {"type": "array", "items": _PORT, "minItems": 1},
            "servers": _LIST,
            "interfaceFrom": _LIST,
            "metricsFrom": _LIST,
            "interfaceCallsConnectors": _SWITCH,
            "privateNetworks": {"type": "array", "items": _NAME},
        }
    )


def _monitoring() -> Json:
    switch = {"enabled": _SWITCH, "labels": _FREE}
    return _object(
        {
            "serviceMonitor": _object({**switch, "interval": _NAME}),
            "rules": _object(switch),
            "dashboards": _object(switch),
        }
    )


def _topics() -> Json:
    return _object(
        {
            "enabled": _SWITCH,
            "cluster": _NAME,
            "namespace": _TEXT,
            "partitions": _least(1),
            "replicas": _least(1),
            "retentionMs": _least(-1),
            "minInsyncReplicas": _least(1),
        }
    )


def _least(number: int) -> Json:
    return {"type": "integer", "minimum": number}


def _object(properties: Json, *, all_required: bool = False) -> Json:
    required = {"required": sorted(properties)} if all_required else {}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **required,
    }
