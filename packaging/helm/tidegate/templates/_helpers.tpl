{{/* Labels of every object. */}}
{{- define "tidegate.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Labels that select the pods of a workload; they never change. */}}
{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "tidegate.image" -}}
{{- with .root.Values.images.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .name }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The settings that all pods have in common. A changed value replaces the pods. */}}
{{- define "tidegate.environment" -}}
- {name: TIDEGATE_API, value: {{ required "controlServers is empty: name the URL of a control server" .root.Values.controlServers | quote }}}
{{- range $name, $value := .own }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
