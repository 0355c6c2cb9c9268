package holdfast_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

var updateEvents = flag.Bool("update", false, "rewrite testdata/events")

var someRisk = &holdfast.FilesAtRisk{
	Turns: []holdfast.TurnAtRisk{{ID: someUUID, Number: 4}}, Direct: true,
	LastEvent: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Since: time.Date(2026, 1, 2, 3, 3, 5, 0, time.UTC),
}

func ptr[T any](v T) *T { return &v }

// payloads has one filled example of each event type: the shape that readers
// written today must be able to read for ever.
var payloads = map[holdfast.EventType]any{
	holdfast.EventSessionCreated: holdfast.SessionCreated{
		Agent: "default", AgentVersion: "sha256:" + "00", Trust: holdfast.Untrusted, Runtime: "native",
		Model: "scripted", Mode: holdfast.ModeBypassPermissions, Title: "a title",
	},
	holdfast.EventSessionUpdated: holdfast.SessionUpdated{
		SessionChange: holdfast.SessionChange{
			Title: ptr("new"), Tags: ptr([]string{"a", "b"}), Mode: ptr(holdfast.ModePlan), Model: ptr("m"), Trust: ptr(holdfast.Trusted), Runtime: ptr("r"),
		},
		From: holdfast.SessionChange{
			Title: ptr("old"), Tags: ptr([]string{}), Mode: ptr(holdfast.ModeDefault), Model: ptr("l"), Trust: ptr(holdfast.Untrusted), Runtime: ptr("q"),
		},
	},
	holdfast.EventSessionPaused: holdfast.Reason{Reason: "asked"},
	holdfast.EventSessionResumed: holdfast.Receipt{
		From: holdfast.StatusPaused, Tier: holdfast.TierOwn, Path: "cold", Turns: 3, Events: 40,
		Files: holdfast.FilesKept, Box: "none", Lost: []string{"the dev server"}, DurationMS: 1.5, AtRisk: someRisk,
	},
	holdfast.EventSessionEnded: holdfast.Reason{Reason: "asked"},
	holdfast.EventSessionError: holdfast.Failure{Kind: holdfast.KindUnavailable, Message: "no box", Hint: "holdfast doctor"},

	holdfast.EventSessionRewound: holdfast.Rewound{Checkpoint: someUUID, Seq: 20, Kept: someUUID, Files: holdfast.FilesRestored},
	holdfast.EventSessionForked:  holdfast.Forked{From: someUUID, Checkpoint: someUUID, Seq: 20, Files: holdfast.FilesRestored},

	holdfast.EventSessionTrashed:   holdfast.Reason{Reason: "asked"},
	holdfast.EventSessionUntrashed: holdfast.Reason{Reason: "asked"},

	holdfast.EventTurnQueued:      holdfast.TurnQueuedData{Number: 2, Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "and then"}}, Position: 1},
	holdfast.EventTurnStarted:     holdfast.TurnStartedData{Number: 2, MessageSeq: 9},
	holdfast.EventTurnCompleted:   holdfast.TurnEnded{Number: 2, MessageSeq: 9, Result: "ok", StopReason: "end_turn", Usage: holdfast.Usage{InputTokens: 5, OutputTokens: 6}, Steps: 2, Denials: []holdfast.DeniedCall{{ToolUseID: "tu_1", Tool: "Bash", Input: []byte(`{"command":"ls"}`)}}},
	holdfast.EventTurnFailed:      holdfast.TurnEnded{Number: 2, MessageSeq: 9, Kind: holdfast.KindUnavailable, Message: "the model is overloaded", Hint: "send again", Steps: 1},
	holdfast.EventTurnInterrupted: holdfast.TurnEnded{Number: 2, MessageSeq: 9, Message: "asked", Steps: 1},

	holdfast.EventMessageUser: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "hello"}}, Steer: true},
	holdfast.EventMessageAssistant: holdfast.AssistantMessage{
		Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "I look"}, {Type: holdfast.PartToolUse, ToolUseID: "tu_1"}}, Seen: 9, StopReason: "tool_use", Model: "scripted",
		Usage: holdfast.Usage{InputTokens: 1, OutputTokens: 2},
	},
	holdfast.EventThinking: holdfast.Thinking{Text: "hm", Signature: "sig"},

	holdfast.EventToolRequested: holdfast.ToolRequested{ToolUseID: "tu_1", Name: "Bash", Input: json.RawMessage(`{"command":"true"}`)},
	holdfast.EventApprovalAsked: holdfast.Approval{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Session: "01890a5d-ac96-774b-bcce-b302099a8058", Turn: "01890a5d-ac96-774b-bcce-b302099a8059",
		ToolUseID: "tu_1", Tool: "Bash", Input: json.RawMessage(`{"command":"git push"}`), InputHash: "00", By: "ask rule", Rule: "Bash(git *)",
		Reason: "the rule Bash(git *) requires approval", Suggestions: []string{"Bash(git push)"}, State: holdfast.ApprovalPending,
		AskedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ExpiresAt: ptr(time.Date(2026, 1, 2, 3, 14, 5, 0, time.UTC)),
	},
	holdfast.EventApprovalAnswered: holdfast.ApprovalAnswered{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", ToolUseID: "tu_1", State: holdfast.ApprovalAllowed, By: "owner",
		Scope: holdfast.ScopeSession, Granted: []string{"Bash(git push)"},
	},
	holdfast.EventApprovalExpired: holdfast.ApprovalAnswered{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", ToolUseID: "tu_1", State: holdfast.ApprovalExpired, Reason: "nobody answered within 10m0s",
	},
	holdfast.EventRulesChanged: holdfast.RulesChanged{
		By: "hook", Changes: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: "deny", Rule: "Bash", Removed: true}},
	},
	holdfast.EventHookRan: holdfast.HookRan{
		Event: "preToolUse", Hook: "./check.sh", Where: "box", ToolUseID: "tu_1", Outcome: "blocked", ExitCode: ptr(2),
		Message: "looked at it", Reason: "not today", DurationMS: 12.5,
		Call: "00000000-0000-8000-8000-000000000000", MessageSeq: 4, Decision: "deny", Input: json.RawMessage(`{"command":"ls"}`), Output: ptr("less"),
		Context: []string{"mind the gap"}, Rules: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: "deny", Rule: "Bash"}},
		Notification: &holdfast.HookNotification{Title: "look", Body: "here", Level: "warning"},
	},
	holdfast.EventToolAllowed: holdfast.ToolDecision{ToolUseID: "tu_1", Tool: "Bash", InputHash: "00", By: "mode"},
	holdfast.EventToolDenied:  holdfast.ToolDecision{ToolUseID: "tu_1", By: "mode", Reason: "plan mode changes nothing"},
	holdfast.EventToolStarted: holdfast.ToolStarted{ToolUseID: "tu_1", Call: someUUID, Box: "s-" + someUUID, Boot: "b1"},
	holdfast.EventToolFinished: holdfast.ToolFinished{
		ToolUseID: "tu_1", Call: someUUID, Outcome: holdfast.ExitExit, ExitCode: ptr(3), Signal: "killed", Content: "out", IsError: true, DurationMS: 1.25,
	},
	holdfast.EventToolUnknown: holdfast.ToolUnknown{ToolUseID: "tu_1", Call: someUUID, Reason: "the box died"},

	holdfast.EventBoxQueued:  holdfast.BoxQueued{Position: 1},
	holdfast.EventBoxStarted: holdfast.BoxStarted{Box: "s-" + someUUID, Boot: "b1", Driver: "local", InForce: []string{"landlock"}, Missing: []string{"memory-limit: no cgroup"}, DurationMS: 7.5},
	holdfast.EventBoxStopped: holdfast.BoxEnded{Box: "s-" + someUUID, Boot: "b1", Reason: "idle", Processes: []string{"node server.js"}},
	holdfast.EventBoxFrozen:  holdfast.BoxEnded{Box: "s-" + someUUID, Boot: "b1", Reason: "idle"},
	holdfast.EventBoxOOM:     holdfast.BoxEnded{Box: "s-" + someUUID, Boot: "b1", Reason: "memory limit"},
	holdfast.EventBoxPids:    holdfast.BoxEnded{Box: "s-" + someUUID, Boot: "b1", Reason: "pids limit"},
	holdfast.EventBoxLost:    holdfast.BoxEnded{Box: "s-" + someUUID, Boot: "b1", Reason: "its process is gone"},

	holdfast.EventSnapshotTaken: holdfast.SnapshotTaken{
		Checkpoint: someUUID, Reason: holdfast.CheckpointTurn, Seq: 20, Files: 12, Bytes: 4096, Changed: 2, Written: 512,
		Fuzzy: []string{"app.log"}, FuzzyMore: 1, Skipped: []string{"~/agent.sock"}, SkippedMore: 2,
		Mismatched: []string{"a.bin"}, MismatchedMore: 3, DurationMS: 3.5,
	},
	holdfast.EventSnapshotFailed: holdfast.Failure{Kind: holdfast.KindUnavailable, Message: "the disk is full", Hint: "free space"},

	holdfast.EventCheckpointHeld:     holdfast.HeldCheckpoint{Checkpoint: someUUID},
	holdfast.EventCheckpointReleased: holdfast.HeldCheckpoint{Checkpoint: someUUID},

	holdfast.EventAgentStarted: holdfast.AgentStarted{
		Generation: 2, Runtime: "claude", AgentID: someUUID, Version: "2.1.329", Tier: holdfast.TierInjected, Turns: 3, Of: 4, Truncated: true,
		Reason: "its transcript ends before what the log holds", Call: someUUID, Box: "s-" + someUUID, DurationMS: 512.5,
	},
	holdfast.EventAgentMirrored: holdfast.AgentMirrored{
		Generation: 2, File: "subagents/agent-1.jsonl", Entries: []json.RawMessage{json.RawMessage(`{"type":"user","uuid":"u1"}`)},
	},
	holdfast.EventAgentQuarantined: holdfast.AgentQuarantined{
		Generation: 1, Runtime: "claude", AgentID: someUUID, Reason: "line 7 is no JSON", Kept: "/home/agent/.claude/quarantine/1.jsonl",
	},
	holdfast.EventEgressAllowed: holdfast.EgressDecision{
		Via: "proxy", Method: "CONNECT", Host: "proxy.golang.org", Port: 443, Path: "/x", Rule: "*.golang.org", Address: "192.0.2.1:443",
		Sent: 517, Received: 4096, DurationMS: 41.5,
	},
	holdfast.EventEgressDenied: holdfast.EgressDecision{
		Via: "proxy", Method: "CONNECT", Host: "169.254.169.254", Port: 80, Reason: "an address is no domain", Count: 3, Last: ptr(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	},

	holdfast.EventModelRequest: holdfast.ModelRequest{
		Provider: "anthropic", Model: "anthropic/m", Status: "overloaded", Message: "busy", Attempt: 2, RequestID: "req_1",
		Messages: 3, Bytes: 4096, Usage: holdfast.Usage{
			InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, CostMicroUSD: 5, UnpricedCalls: 1,
		}, FirstMS: 120.5, DurationMS: 900.25,
	},
	holdfast.EventUsage: holdfast.UsageData{
		Turn:    holdfast.Spent{Usage: holdfast.Usage{InputTokens: 1, OutputTokens: 2}, Calls: 1, Turns: 1, DurationMS: 7},
		Session: holdfast.Spent{Usage: holdfast.Usage{InputTokens: 3, OutputTokens: 4, CostMicroUSD: 5}, Calls: 2, Turns: 2, DurationMS: 9},
		Budget:  &holdfast.Budget{Turns: 10, Tokens: 1000, USD: 0.5, Seconds: 60},
	},

	holdfast.EventFilesImported: holdfast.FilesImported{From: "git https://example.com/x#main", Files: 3, Bytes: 20480, Start: "0a0a"},
	holdfast.EventNotice:        holdfast.Notice{Code: "model.retry", Text: "asked the model again", AtRisk: someRisk},

	holdfast.EventDamaged: holdfast.Damaged{Reason: "its checksum does not match"},

	holdfast.DeltaText:       holdfast.TextDelta{Text: "he"},
	holdfast.DeltaThinking:   holdfast.TextDelta{Text: "h"},
	holdfast.DeltaToolOutput: holdfast.ToolOutput{ToolUseID: "tu_1", Stream: "stdout", Text: "o"},
}

// eventTypes reads the constants of type EventType from the source.
func eventTypes(t *testing.T) []holdfast.EventType {
	t.Helper()
	var out []holdfast.EventType
	for _, s := range sources(t) {
		if s.name != "event.go" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "EventType" {
				for _, v := range spec.Values {
					if lit, ok := v.(*ast.BasicLit); ok {
						if s, err := strconv.Unquote(lit.Value); err == nil {
							out = append(out, holdfast.EventType(s))
						}
					}
				}
			}
			return true
		})
	}
	return out
}

// TestEventTypesAreTheVocabulary: a type that is added can be filtered for.
func TestEventTypesAreTheVocabulary(t *testing.T) {
	got, want := holdfast.Words[holdfast.EventType](), eventTypes(t)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 30 || !slices.Equal(got, want) {
		t.Errorf("filters know %v\nthe vocabulary has %v", got, want)
	}
}

func TestEventGoldenFiles(t *testing.T) {
	types := eventTypes(t)
	if len(types) != len(payloads) || len(types) < 30 {
		t.Errorf("%d event types, %d examples", len(types), len(payloads))
	}
	for _, typ := range types {
		payload, ok := payloads[typ]
		if !ok {
			t.Errorf("%s has no example in this test", typ)
			continue
		}
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		e := holdfast.Event{
			Session: someUUID, Seq: 12, Type: typ, Turn: someUUID, Data: data,
			Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC),
		}
		if strings.HasSuffix(string(typ), ".delta") || typ == holdfast.DeltaToolOutput {
			e.Seq = 0
		}
		if typ == holdfast.EventToolFinished { // one of them belongs to a child agent
			e.Agent = "a1"
		}
		checkGolden(t, filepath.Join("testdata", "events", string(typ)+".json"), e, payload)
	}
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		typ := holdfast.EventType(strings.TrimSuffix(filepath.Base(f), ".json"))
		if _, ok := payloads[typ]; !ok {
			t.Errorf("%s is for an event type that is gone: the set is append-only", f)
		}
	}
}

func checkGolden(t *testing.T, name string, e holdfast.Event, payload any) {
	t.Helper()
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *updateEvents {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Errorf("%v (make it with: go test . -run TestEventGoldenFiles -update)", err)
		return
	}
	if d := cmp.Diff(string(golden), string(text)); d != "" {
		t.Errorf("%s: the wire form changed:\n%s", name, d)
	}
	var back holdfast.Event
	if err := json.Unmarshal(golden, &back); err != nil {
		t.Fatal(err)
	}
	got := reflect.New(reflect.TypeOf(payload))
	if err := back.Decode(got.Interface()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	opt := cmp.Transformer("json", func(r json.RawMessage) any {
		var v any
		if err := json.Unmarshal(r, &v); err != nil {
			return string(r)
		}
		return v
	})
	if d := cmp.Diff(payload, got.Elem().Interface(), opt); d != "" {
		t.Errorf("%s does not read back:\n%s", name, d)
	}
}

func TestEventEndsTurn(t *testing.T) {
	for _, typ := range eventTypes(t) {
		want := typ == "turn.completed" || typ == "turn.failed" || typ == "turn.interrupted"
		if got := (holdfast.Event{Type: typ}).EndsTurn(); got != want {
			t.Errorf("%s ends a turn: %v", typ, got)
		}
	}
}

func TestEventDecodeRefusesGarbage(t *testing.T) {
	var r holdfast.Reason
	err := holdfast.Event{Seq: 7, Type: "session.paused", Data: json.RawMessage(`{"reason":`)}.Decode(&r)
	if holdfast.KindOf(err) != holdfast.KindInternal || !strings.Contains(err.Error(), "session.paused #7") {
		t.Error(err)
	}
}

func TestSecretsAreNoFields(t *testing.T) {
	for _, v := range []any{holdfast.Session{}, holdfast.Turn{}, holdfast.Event{}, holdfast.Agent{}, holdfast.Container{}, holdfast.Health{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			for _, bad := range []string{"Secret", "Password", "Token", "Key"} {
				if n := typ.Field(i).Name; strings.HasSuffix(n, bad) {
					t.Errorf("%s.%s looks like a secret in a wire type", typ.Name(), n)
				}
			}
		}
	}
}
