package httpapi

import (
	"maps"
	"math"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// Routes returns the patterns of all routes, for the metrics.
func Routes() []string { return slices.Sorted(maps.Keys(rules)) }

// rules has the requirements of each route, such as its scope, by the route's pattern. A route
// without an entry refuses every request, and a test reports it. Limits of queries and bodies
// are added from the OpenAPI document.
//
// Reading files needs the scope write, because it starts the session's box and resumes a paused
// session. EngineChecksTrust is set where the engine compares the trust itself, because it
// lets a key change some things, such as the title, of a session with more trust than the key.
//
//nolint:gochecknoglobals // a table
var rules = map[string]guard.Rule{
	"GET /healthz":      {Scope: guard.Public},
	"GET /readyz":       {Scope: guard.Public},
	"GET /openapi.json": {Scope: guard.Public},
	"GET /docs":         {Scope: guard.Public},
	"GET /{$}":          {Scope: guard.Public},

	"GET /metrics": {Scope: holdfast.ScopeRead},

	"GET /v1/agents":                 {Scope: holdfast.ScopeRead},
	"POST /v1/agents":                {Scope: holdfast.ScopeAdmin, WhyNoKey: "the same content is the same version id; deploy again", Streamed: true},
	"GET /v1/agents/{name}":          {Scope: holdfast.ScopeRead},
	"PATCH /v1/agents/{name}":        {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again: what is set stays set"},
	"DELETE /v1/agents/{name}":       {Scope: holdfast.ScopeAdmin},
	"GET /v1/agents/{name}/versions": {Scope: holdfast.ScopeRead},

	"GET /v1/workspaces":                {Scope: holdfast.ScopeRead},
	"POST /v1/workspaces":               {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again with an id: a second one is a conflict"},
	"GET /v1/workspaces/{workspace}":    {Scope: holdfast.ScopeRead},
	"PATCH /v1/workspaces/{workspace}":  {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again, or send the revision it is for"},
	"DELETE /v1/workspaces/{workspace}": {Scope: holdfast.ScopeAdmin},
	"GET /v1/trash/workspaces":          {Scope: holdfast.ScopeRead},
	"DELETE /v1/trash/workspaces":       {Scope: holdfast.ScopeAdmin},

	"GET /v1/sessions":                  {Scope: holdfast.ScopeRead},
	"POST /v1/sessions":                 {Scope: holdfast.ScopeWrite, HonoursKey: true},
	"GET /v1/sessions/{id}":             {Scope: holdfast.ScopeRead},
	"GET /v1/sessions/{id}/agents":      {Scope: holdfast.ScopeRead},
	"PATCH /v1/sessions/{id}":           {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again, or send the revision it is for", EngineChecksTrust: true},
	"DELETE /v1/sessions/{id}":          {Scope: holdfast.ScopeWrite},
	"POST /v1/sessions/{id}/pause":      {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again, or look at the session"},
	"POST /v1/sessions/{id}/resume":     {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again, or look at the session"},
	"POST /v1/sessions/{id}/end":        {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again, or look at the session"},
	"POST /v1/sessions/{id}/interrupt":  {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again, or look at the session"},
	"GET /v1/sessions/{id}/checkpoints": {Scope: holdfast.ScopeRead},
	"POST /v1/sessions/{id}/rewind":     {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again: the session ends at the same checkpoint"},
	"POST /v1/sessions/{id}/fork":       {Scope: holdfast.ScopeWrite, HonoursKey: true},

	"POST /v1/sessions/{id}/turns":          {Scope: holdfast.ScopeWrite, HonoursKey: true, EngineChecksTrust: true},
	"GET /v1/sessions/{id}/turns":           {Scope: holdfast.ScopeRead},
	"GET /v1/sessions/{id}/turns/{turn}":    {Scope: holdfast.ScopeRead},
	"GET /v1/sessions/{id}/usage":           {Scope: holdfast.ScopeRead},
	"GET /v1/sessions/{id}/events":          {Scope: holdfast.ScopeRead},
	"GET /v1/sessions/{id}/transcript":      {Scope: holdfast.ScopeRead},
	"POST /v1/sessions/{id}/policy/explain": {Scope: holdfast.ScopeRead, WhyNoKey: "it changes nothing; send it again"},

	"GET /v1/server": {Scope: holdfast.ScopeRead},
	"GET /v1/models": {Scope: holdfast.ScopeRead},
	"GET /v1/search": {Scope: holdfast.ScopeRead},

	"GET /v1/sessions/{id}/files":              {Scope: holdfast.ScopeWrite},
	"GET /v1/sessions/{id}/files/{path...}":    {Scope: holdfast.ScopeWrite},
	"PUT /v1/sessions/{id}/files":              {Scope: holdfast.ScopeWrite, Query: true, MaxBody: math.MaxInt64, Streamed: true},
	"DELETE /v1/sessions/{id}/files":           {Scope: holdfast.ScopeWrite, Query: true, MaxBody: math.MaxInt64, Streamed: true},
	"PUT /v1/sessions/{id}/files/{path...}":    {Scope: holdfast.ScopeWrite},
	"DELETE /v1/sessions/{id}/files/{path...}": {Scope: holdfast.ScopeWrite},
	"GET /v1/sessions/{id}/tree":               {Scope: holdfast.ScopeWrite},
	"GET /v1/sessions/{id}/tree/{path...}":     {Scope: holdfast.ScopeWrite},
	"PUT /v1/sessions/{id}/tree":               {Scope: holdfast.ScopeWrite},
	"PUT /v1/sessions/{id}/tree/{path...}":     {Scope: holdfast.ScopeWrite},
	"PUT /v1/sessions/{id}/import":             {Scope: holdfast.ScopeWrite},
	"GET /v1/sessions/{id}/diff":               {Scope: holdfast.ScopeWrite},
	"POST /v1/sessions/{id}/restore":           {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again: the files become the same"},
	"POST /v1/sessions/{id}/untrash":           {Scope: holdfast.ScopeWrite, WhyNoKey: "look at the session: it is in the trash or not"},
	"POST /v1/sessions/{id}/exec":              {Scope: holdfast.ScopeWrite, WhyNoKey: "the outcome of a command is not kept; a message to the agent may carry a key"},
	"GET /v1/sessions/{id}/terminal":           {Scope: holdfast.ScopeWrite},
	"GET /v1/sessions/{id}/editor":             {Scope: holdfast.ScopeWrite},

	"POST /v1/sessions/{id}/checkpoints/{checkpoint}/hold":   {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again: what is held stays held"},
	"DELETE /v1/sessions/{id}/checkpoints/{checkpoint}/hold": {Scope: holdfast.ScopeWrite},

	"GET /v1/containers":        {Scope: holdfast.ScopeRead},
	"POST /v1/containers/stop":  {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again: what is stopped stays stopped"},
	"POST /v1/containers/prune": {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again: what is removed stays removed"},

	"GET /v1/snapshots":          {Scope: holdfast.ScopeAdmin},
	"POST /v1/snapshots/collect": {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again: what is removed stays removed"},
	"POST /v1/snapshots/verify":  {Scope: holdfast.ScopeAdmin, WhyNoKey: "it changes nothing; send it again"},
	"POST /v1/backup":            {Scope: holdfast.ScopeAdmin, WhyNoKey: "it changes nothing; send it again"},

	// A key with the scope write may also answer the approvals of its sessions.
	"GET /v1/approvals":       {Scope: holdfast.ScopeRead},
	"GET /v1/approvals/{id}":  {Scope: holdfast.ScopeRead},
	"POST /v1/approvals/{id}": {Scope: holdfast.ScopeWrite, WhyNoKey: "a question takes one answer; send it again, or look at the question"},

	"GET /v1/sessions/{id}/rules":    {Scope: holdfast.ScopeRead},
	"DELETE /v1/sessions/{id}/rules": {Scope: holdfast.ScopeWrite},

	"GET /v1/keys":         {Scope: holdfast.ScopeAdmin},
	"POST /v1/keys":        {Scope: holdfast.ScopeAdmin, WhyNoKey: "a secret is told once; revoke a key whose answer was lost, and make another"},
	"DELETE /v1/keys/{id}": {Scope: holdfast.ScopeAdmin},

	"GET /v1/secrets":            {Scope: holdfast.ScopeAdmin},
	"PUT /v1/secrets/{name}":     {Scope: holdfast.ScopeAdmin},
	"DELETE /v1/secrets/{name}":  {Scope: holdfast.ScopeAdmin},
	"POST /v1/secret-key/rotate": {Scope: holdfast.ScopeAdmin, WhyNoKey: "send it again: the values are wrapped once more, which harms nobody"},

	"GET /v1/audit":      {Scope: holdfast.ScopeAdmin},
	"GET /v1/audit/head": {Scope: holdfast.ScopeAdmin},
}

// describedRules returns rules, with Query and MaxBody set from the operations of the OpenAPI
// document.
func describedRules(doc *huma.OpenAPI) map[string]guard.Rule {
	out := maps.Clone(rules)
	for pattern, op := range spec.Operations(doc) {
		rule, ok := out[pattern]
		if !ok {
			continue
		}
		rule.Query = true // the guard need not refuse queries: huma checks them
		if op.RequestBody != nil {
			rule.MaxBody = op.MaxBodyBytes
		}
		out[pattern] = rule
	}
	return out
}
