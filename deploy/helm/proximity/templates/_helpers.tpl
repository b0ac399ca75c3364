{{- define "proximity.name" -}}
{{- if contains "proximity" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-proximity" .Release.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- /* Called with (list $ "trigger"): the labels that never change. */ -}}
{{- define "proximity.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: proximity
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "proximity.labels" -}}
{{ include "proximity.selector" . }}
{{- $top := index . 0 }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version }}
{{- end -}}

{{- define "proximity.image" -}}
{{- with .Values.image }}
{{- if .digest -}}{{ printf "%s@%s" .repository .digest }}
{{- else -}}{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A number of the values without an exponent. */ -}}
{{- define "proximity.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- define "proximity.environment" -}}
- {name: PROXIMITY_METRICS_HOST, value: "0.0.0.0"}
- {name: PROXIMITY_API_HOST, value: "0.0.0.0"}
- {name: PROXIMITY_METRICS_PORT, value: "9464"}
- {name: PROXIMITY_API_METRICS_PORT, value: "9464"}
- {name: PROXIMITY_LOG_FORMAT, value: json}
{{- range $name, $key := .Values.secrets.keys }}
- {name: PROXIMITY_{{ $name }}_FILE, value: /run/proximity/secrets/{{ $key }}}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: PROXIMITY_{{ $name }}, value: {{ include "proximity.text" $value | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "proximity.container" -}}
image: {{ include "proximity.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  {{- include "proximity.environment" . | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: secrets, mountPath: /run/proximity/secrets, readOnly: true}
  {{- if .Values.tls.secretName }}
  - {name: tls, mountPath: /run/proximity/tls, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Called with (list $ "trigger"): a setting of its own in `roles` or `interface`, else everybody's. */ -}}
{{- define "proximity.placement" -}}
{{- $top := index . 0 -}}
{{- $own := index (merge (dict "interface" $top.Values.interface) $top.Values.roles) (index . 1) | default dict -}}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $own $name | default (index $top.Values $name) }}
{{ $name }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Labels and annotations of a pod. The checksum changes with the secrets, so that the pods are replaced. */ -}}
{{- define "proximity.podMetadata" -}}
{{- $top := index . 0 -}}
labels: {{ merge (include "proximity.labels" . | fromYaml) $top.Values.podLabels | toYaml | nindent 2 }}
annotations:
  {{- with $top.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- $found := lookup "v1" "Secret" $top.Release.Namespace $top.Values.secrets.name | default dict }}
  checksum/secrets: {{ $top.Values.secrets.checksum | default (get $found "data" | toJson | sha256sum) | quote }}
{{- end -}}

{{- define "proximity.pod" -}}
{{- $self := . -}}
{{- with index . 0 -}}
enableServiceLinks: false
{{- /* The migrations of an installation run before the account is created. */}}
{{- if not (and .Values.serviceAccount.create (eq (index $self 1) "migrate")) }}
serviceAccountName: {{ include "proximity.serviceAccount" . }}
{{- end }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- include "proximity.placement" $self }}
volumes:
  - {name: tmp, emptyDir: {}}
  - name: secrets
    secret:
      secretName: {{ .Values.secrets.name }}
      defaultMode: 0440
      items:
        {{- range $name, $key := .Values.secrets.keys }}
        - {key: {{ $key }}, path: {{ $key }}}
        {{- end }}
  {{- if .Values.tls.secretName }}
  - name: tls
    secret: {secretName: {{ .Values.tls.secretName }}, defaultMode: 0440}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "proximity.serviceAccount" -}}
{{ .Values.serviceAccount.create | ternary (include "proximity.name" .) (default "default" .Values.serviceAccount.name) }}
{{- end -}}

{{- /* The number of a quantity such as 640Mi (bytes) or 5m (seconds). */ -}}
{{- define "proximity.number" -}}
{{- $units := dict "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $units = merge $units (dict "ms" 0.001 "m" 60 "h" 3600 "d" 86400) -}}
{{- $text := include "proximity.text" . -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text) | default 1) | int64 -}}
{{- end -}}

{{- /* What the metrics port says: whether the loop turns, and whether the work can be done. */ -}}
{{- define "proximity.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 4
  failureThreshold: 2
{{- end -}}

{{- /* Called with (list $ component): the deployment's name. */ -}}
{{- define "proximity.component" -}}
{{ include "proximity.name" (index . 0) }}-{{ index . 1 }}
{{- end -}}

{{- define "proximity.spread" -}}
{{- $top := index . 0 -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ $top.Values.spread.topologyKey }}
    whenUnsatisfiable: {{ $top.Values.spread.whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{ include "proximity.selector" . | nindent 8 }}
{{- end -}}
