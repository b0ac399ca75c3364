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
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}

{{- /* A number of the values without an exponent. */ -}}
{{- define "proximity.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- define "proximity.environment" -}}
- {name: PROXIMITY_METRICS_HOST, value: "0.0.0.0"}
- {name: PROXIMITY_API_METRICS_HOST, value: "0.0.0.0"}
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
{{- end -}}

{{- define "proximity.pod" -}}
enableServiceLinks: false
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
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
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
