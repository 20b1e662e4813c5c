{{/* The image's full name; the argument is the root. */}}
{{- define "drover.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What selects the pods of a role; the argument is a list of the root and the role. */}}
{{- define "drover.selector" -}}
app.kubernetes.io/name: {{ include "drover.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of an object of a role; the argument is a list of the root and the role. */}}
{{- define "drover.roleLabels" -}}
{{ include "drover.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The configuration file of the controller. */}}
{{- define "drover.controllerConfig" -}}
{{- $policies := list }}
{{- range $name, $isOn := dict "drover-intents" .Values.intents.enabled "drover-plugins" .Values.pluginRestriction.enabled "drover-priorities" .Values.priorityRestriction.enabled "drover-secrets" .Values.secretRestriction.enabled }}
{{- if $isOn }}{{ $policies = append $policies $name }}{{ end }}
{{- end }}
{{ toYaml (mergeOverwrite (deepCopy .Values.controller.config) (dict "namespace" .Release.Namespace "requiresNodeRestriction" .Values.nodeRestriction.enabled "requiredPolicies" $policies "hasGateway" .Values.gateway.enabled "metrics" (dict "perJob" .Values.metrics.perJob))) }}
{{- end }}

{{/* The configuration file of the agent. */}}
{{- define "drover.agentConfig" -}}
{{- $agent := .Values.agent }}
{{- $drivers := dict "exec" (merge (dict "enabled" $agent.drivers.exec) $agent.exec) "rawExec" (dict "enabled" $agent.drivers.rawExec) "containerd" (merge (dict "enabled" $agent.drivers.containerd) $agent.containerd) "mock" (dict "enabled" $agent.drivers.mock) }}
{{- $own := dict "namespace" .Release.Namespace "stateDir" (printf "%s/state" $agent.hostStatePath) "allocDir" (printf "%s/alloc" $agent.hostStatePath) "nodePool" $agent.nodePool "datacenter" $agent.datacenter "meta" $agent.meta "drivers" $drivers "csi" (dict "kubeletDir" $agent.kubeletDir) }}
{{- $network := dict "dns" $agent.network.dns "cniBinDir" $agent.network.cniBinDir }}
{{- range $key := list "bridgeSubnet" "cniConfigDir" }}
{{- with index $agent.network $key }}
{{- $_ := set $network $key . }}
{{- end }}
{{- end }}
{{- $_ := set $own "network" $network }}
{{- if .Values.gateway.enabled }}
{{- $_ := set $own "gateway" (dict "service" (include "drover.roleName" (list . "gateway")) "tokenFile" "/var/run/secrets/drover.dev/gateway/token") }}
{{- end }}
{{- toYaml (merge (deepCopy $agent.config) $own) }}
{{- end }}

{{/* The configuration file of the gateway; it plans jobs as the controller does. */}}
{{- define "drover.gatewayConfig" -}}
{{- $scheduler := .Values.controller.config.scheduler }}
{{ toYaml (mergeOverwrite (ternary (dict) (dict "scheduler" $scheduler) (empty $scheduler)) (ternary (dict) (dict "identities" (dict "issuer" .Values.gateway.issuer)) (empty .Values.gateway.issuer)) (deepCopy .Values.gateway.config) (dict "namespace" .Release.Namespace "service" (include "drover.roleName" (list . "gateway")) "agentAccount" (include "drover.roleName" (list . "agent")) "apiService" .Values.gateway.apiService "nomadWrites" .Values.gateway.nomadWrites)) }}
{{- end }}

{{/* The roles of this release that run as pods; the argument is the root. */}}
{{- define "drover.roles" -}}
controller agent{{ if .Values.gateway.enabled }} gateway{{ end }}
{{- end }}

{{/* What all kinds of pods have in common; the argument is a list of the root and the role. */}}
{{- define "drover.podMetadata" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 }}
{{- $own := index $root.Values $role }}
labels: {{- include "drover.roleLabels" . | nindent 2 }}
annotations:
  drover.dev/config-digest: {{ include (printf "drover.%sConfig" $role) $root | sha256sum }}
  {{- if $root.Values.metrics.enabled }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ get (dict "controller" 8080 "agent" $root.Values.agent.port "gateway" 9464) $role | quote }}
  {{- end }}
  {{- with $own.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
