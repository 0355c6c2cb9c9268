package spec

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/policy"
)

// The examples of the OpenAPI document and of the HTML page are values of the wire types, so that
// they change with the types. A test validates each example against its schema, and fails for an
// operation without one.

const (
	exampleID   = "01890a5d-ac96-774b-bcce-b302099a8057"
	exampleTurn = "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0e"
)

func exampleTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC) }

func exampleSession() holdfast.Session {
	return holdfast.Session{
		ID: exampleID, Status: holdfast.StatusActive, Agent: "reviewer",
		AgentVersion: holdfast.VersionID("sha256:" + strings.Repeat("0a", 32)), Trust: holdfast.Untrusted,
		Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Title: "review of the parser",
		Tags: []string{"urgent"}, Env: map[string]string{"PROJECT": "***"}, Revision: 3, LastSeq: 12, CompletedTurns: 1,
		CreatedAt: exampleTime(), LastActiveAt: exampleTime(),
	}
}

func exampleTurnOf() holdfast.Turn {
	at := exampleTime()
	return holdfast.Turn{
		ID: exampleTurn, Session: exampleID, Status: holdfast.TurnCompleted, Number: 1, MessageSeq: 2,
		Text: "write hello.txt", Result: "done", StopReason: "end_turn",
		Usage: &holdfast.Usage{InputTokens: 120, OutputTokens: 14}, CreatedAt: at, StartedAt: &at, EndedAt: &at,
	}
}

func exampleModels() holdfast.Models {
	return holdfast.Models{Default: "openai/llama3.2", Providers: []holdfast.ModelProvider{
		{Name: "anthropic", Host: "api.anthropic.com", Models: []string{}, Hint: "set ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file, or: holdfast secret set anthropic"},
		{Name: "openai", Host: "127.0.0.1:11434", Configured: true, Models: []string{"openai/llama3.2", "openai/qwen3"}},
	}}
}

func exampleServer() holdfast.Server {
	return holdfast.Server{
		Version: "0.4.0", PID: 4100, StartedAt: exampleTime(), Driver: "local",
		Boxes:  holdfast.BoxSupport{Usable: true, Missing: []string{"signal-scope: the kernel has no such scope"}, Hint: "kernel 6.12 or later"},
		Models: exampleModels(), DefaultRuntime: "native",
		Runtimes: []holdfast.Runtime{{Name: "claude", Version: "2.1.0"}, {Name: "native"}},
		Limits:   holdfast.Limits{Boxes: 64, Turns: 3, MemoryBytes: 4 << 30, CPUs: 2, Pids: 512, TmpBytes: 512 << 20, DiskBytes: 10 << 30},
		Disk:     holdfast.Disk{Bytes: 100 << 30, FreeBytes: 60 << 30, ReserveBytes: 5 << 30},
	}
}

func exampleApproval() holdfast.Approval {
	input := json.RawMessage(`{"command":"git push origin main"}`)
	expires := exampleTime().Add(10 * time.Minute)
	return holdfast.Approval{
		ID: "01890a5d-c0de-7a11-8b1e-9f2a3b4c5d6e", Session: exampleID, Turn: exampleTurn, ToolUseID: "toolu_1", Tool: "Bash",
		Input: input, InputHash: policy.InputHash(input), By: "ask rule", Rule: "Bash(git push *)",
		Reason: "the rule Bash(git push *) requires approval", Suggestions: []string{"Bash(git push origin main)"},
		State: holdfast.ApprovalPending, AskedAt: exampleTime(), ExpiresAt: &expires,
	}
}

// exampleRules is an answer with the rule that exampleAnswered added.
func exampleRules() map[string]any {
	return map[string]any{"rules": []holdfast.Rule{{
		Scope: holdfast.ScopeSession, Behavior: "grant", Rule: "Bash(git push origin main)", By: string(exampleApproval().ID),
		Trust: holdfast.Untrusted, AddedAt: exampleTime(),
	}}}
}

func exampleAnswered() holdfast.Approval {
	a, at := exampleApproval(), exampleTime().Add(time.Minute)
	a.State, a.AnsweredAt, a.AnsweredBy, a.Scope = holdfast.ApprovalAllowed, &at, "owner", holdfast.ScopeSession
	return a
}

func exampleCheckpoint() holdfast.Checkpoint {
	return holdfast.Checkpoint{
		ID: exampleTurn, Session: exampleID, Reason: holdfast.CheckpointTurn, Seq: 12, Turn: exampleTurn, Number: 1, CreatedAt: exampleTime(),
		Workspace: strings.Repeat("0a", 32), Home: strings.Repeat("0b", 32), Files: 14, Bytes: 20_480,
	}
}

func exampleHeld(held bool) map[string]any {
	cp := exampleCheckpoint()
	cp.Held = held
	return map[string]any{"checkpoint": cp}
}

func exampleRewound() holdfast.RewoundSession {
	s := exampleSession()
	s.Revision, s.LastSeq = 4, 31
	return holdfast.RewoundSession{Session: s, Rewound: holdfast.Rewound{
		Checkpoint: exampleTurn, Seq: 12, Kept: "01890a5d-d3a4-7f08-9c17-2b6e4d5f6a71", Files: holdfast.FilesRestored,
	}}
}

func exampleFork() holdfast.Session {
	s := exampleSession()
	s.ID, s.Title = "01890a5d-e0b2-7d3e-8f40-6c7b8a9d0e1f", "another try"
	return s
}

func exampleWorkspace() holdfast.Workspace {
	return holdfast.Workspace{
		ID: "apollo", Title: "the parser", DefaultTrust: holdfast.Untrusted, Network: []string{"proxy.golang.org"}, Sessions: 2, Revision: 3,
		CreatedAt: exampleTime(), UpdatedAt: exampleTime(),
	}
}

func exampleStore() holdfast.SnapshotStore {
	return holdfast.SnapshotStore{
		Checkpoints: 12, Packs: 9, Bytes: 1_884_160, UnusedPacks: 2, UnusedBytes: 40_960,
		Sessions: []holdfast.SessionSnapshots{{Session: exampleID, Checkpoints: 12, Packs: 7, Bytes: 1_843_200, Newest: exampleTime()}},
	}
}

func exampleCollected() holdfast.CollectedSnapshots {
	return holdfast.CollectedSnapshots{
		DryRun:      true,
		Checkpoints: []holdfast.ReportedCheckpoint{{ID: exampleTurn, Session: exampleID, Reason: "age"}},
		Marked:      []holdfast.ReportedPack{{ID: strings.Repeat("0a", 32), Bytes: 20_480, Reason: "unused"}}, MarkedBytes: 20_480,
		Removed: []holdfast.ReportedPack{{ID: strings.Repeat("0b", 32), Bytes: 20_480, Reason: "unused"}}, RemovedBytes: 20_480,
		Faults: []holdfast.ReportedPack{},
	}
}

func exampleVerified() holdfast.VerifiedSnapshots {
	pack := holdfast.ReportedPack{ID: strings.Repeat("0a", 32), Bytes: 20_480, Reason: "the file is missing", Checkpoints: []holdfast.CheckpointID{exampleTurn}}
	return holdfast.VerifiedSnapshots{
		Checkpoints: 12, Packs: 7, Blobs: 310, Bytes: 1_843_200,
		Damaged: []holdfast.ReportedCheckpoint{{ID: exampleTurn, Session: exampleID, Paths: []string{"src/main.go"}}},
		Faults:  []holdfast.ReportedPack{pack},
	}
}

// requestExamples returns, by operation id, an example for each JSON request body.
func requestExamples() map[string]any {
	title, tags := "review of the parser", []string{"urgent"}
	plan := string(holdfast.ModePlan)
	end := holdfast.EndSession{Interrupt: true, Reason: "lunch"}
	return map[string]any{
		"create-session":   holdfast.CreateSession{Agent: "reviewer", Title: title, Tags: tags, Env: map[string]string{"PROJECT": "apollo"}},
		"create-workspace": holdfast.CreateWorkspace{ID: "apollo", WorkspaceSettings: holdfast.WorkspaceSettings{Title: &title}},
		"update-workspace": holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: &title}, Revision: 2},
		"update-session":   holdfast.UpdateSession{Title: &title, AddTags: tags, Revision: 3},
		"pause-session":    end,
		"end-session":      end,
		"delete-session":   holdfast.EndSession{Purge: true},
		"resume-session":   holdfast.ResumeSession{DryRun: true},
		"rewind-session":   holdfast.RewindSession{To: exampleTurn},
		"fork-session":     holdfast.ForkSession{At: exampleTurn, Title: "another try"},
		"restore-files":    holdfast.RestoreFiles{Path: "src/parser.go", At: exampleTurn},
		"send-message":     holdfast.SendMessage{Text: "write hello.txt", Mode: string(holdfast.SendQueue)},
		"exec":             holdfast.ExecRequest{Command: "cat hello.txt", TimeoutMS: 5000},
		"stop-containers": holdfast.StopContainers{
			IDs: []string{"s-" + exampleID},
		},
		"prune-containers":  map[string]any{"dry_run": true},
		"collect-snapshots": map[string]any{"dry_run": true},
		"update-agent":      holdfast.UpdateAgent{Mode: &plan},
		"explain-policy":    holdfast.ExplainPolicy{Tool: "Bash", Input: json.RawMessage(`{"command":"git push"}`)},
		"answer-approval":   holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession, Rules: []string{"Bash(git push *)"}},
		"set-secret":        holdfast.SetSecret{Value: []byte("sk-…")},
		"create-key":        holdfast.CreateKey{Name: "ci", Scopes: []string{"write"}, MaxTrust: "untrusted"},
	}
}

// workspaceAnswers returns the examples of answers about workspaces.
func workspaceAnswers() map[string]any {
	space := exampleWorkspace()
	return map[string]any{
		"create-workspace": map[string]any{"workspace": space}, "get-workspace": map[string]any{"workspace": space}, "update-workspace": map[string]any{"workspace": space},
		"list-workspaces":  map[string]any{"workspaces": []holdfast.Workspace{space}},
		"delete-workspace": holdfast.DeletedWorkspace{Sessions: []holdfast.SessionID{exampleID}, Files: "trashed"},
		"list-trashed-workspaces": map[string]any{"workspaces": []holdfast.DeletedWorkspace{{
			ID: space.ID, DeletedAt: &space.CreatedAt, Sessions: []holdfast.SessionID{}, Files: "trashed",
		}}},
	}
}

// answerExamples returns, by operation id, an example of each JSON answer to a successful request.
func answerExamples() map[string]any {
	at := exampleTime()
	session := map[string]any{"session": exampleSession()}
	agent := holdfast.Agent{
		Name: "reviewer", Version: 2, VersionID: exampleSession().AgentVersion, Description: "reviews changes", Mode: holdfast.ModePlan,
		Runtime: "native", CreatedAt: at, UpdatedAt: at,
	}
	file := holdfast.FileInfo{Path: "hello.txt", Type: "file", Size: 6, Mode: 0o644, ModTime: at}
	box := map[string]any{"containers": []holdfast.Container{{
		ID: "s-" + exampleID, Driver: "local", State: holdfast.BoxIdle, Session: exampleID, PID: 4242, Boot: "b1", StartedAt: at, LastUsed: at,
	}}}
	health := holdfast.Health{Status: "ok", Version: "1.0.0", Driver: "local", PID: 4100}
	secret := holdfast.Secret{Name: "anthropic", KeyID: "9c1f6a0be2d47583", CreatedAt: at, UpdatedAt: at}
	key := holdfast.Key{ID: "5f1c0a9e7b3d2468", Name: "ci", Scopes: []holdfast.Scope{holdfast.ScopeWrite}, MaxTrust: holdfast.Untrusted, CreatedAt: at}
	turn := exampleTurnOf()
	copied := holdfast.Copied{Files: 3, Dirs: 1, Links: 1, Bytes: 20_480, Skipped: []string{"run/x.sock: a socket"}}
	imported := exampleSession()
	imported.Source = &holdfast.Source{From: "directory /home/you/project of laptop", Complete: true, Start: strings.Repeat("0a", 20)}
	running := turn
	running.Status, running.Result, running.StopReason, running.Usage, running.EndedAt = holdfast.TurnRunning, "", "", nil, nil
	return map[string]any{
		"create-session": session, "get-session": session, "update-session": session, "pause-session": session,
		"end-session": session, "untrash-session": session, "interrupt-session": session,
		"list-sessions": holdfast.SessionPage{Sessions: []holdfast.Session{exampleSession()}, Next: "czEy"},
		"resume-session": holdfast.Resumed{Session: exampleSession(), Receipt: &holdfast.Receipt{
			From: holdfast.StatusPaused, Tier: holdfast.TierRebuilt, Path: "cold", Turns: 1, Events: 12, Files: holdfast.FilesKept, Box: "none", DurationMS: 1.2,
		}},
		"list-checkpoints": holdfast.CheckpointPage{Checkpoints: []holdfast.Checkpoint{exampleCheckpoint()}, Next: "MTIuMw"},
		"hold-checkpoint":  exampleHeld(true), "release-checkpoint": exampleHeld(false), "rewind-session": exampleRewound(), "fork-session": map[string]any{"session": exampleFork()},
		"search": holdfast.SearchPage{Hits: []holdfast.SearchHit{{
			Session: exampleID, Title: "review of the parser", Seq: 2, Turn: exampleTurn, Role: holdfast.RoleUser, Snippet: "write hello.txt", Time: at,
		}}},
		"explain-policy": holdfast.PolicyExplanation{
			Verdict: "ask", By: "ask rule", Rule: "Bash(git push *)", Reason: "the rule Bash(git push *) requires approval", Mode: holdfast.ModeDefault,
			Trace: []holdfast.PolicyStep{{Stage: "ask rules", Verdict: "ask", Reason: "the rule Bash(git push *) requires approval", Rule: "Bash(git push *)"}},
		},
		"send-message": holdfast.Sent{Turn: running, Seq: 1},
		"write-tree":   map[string]any{"copied": copied}, "write-subtree": map[string]any{"copied": copied}, "restore-files": map[string]any{"copied": copied},
		"import-files": holdfast.Imported{Session: imported, Copied: copied},
		"list-session-agents": map[string]any{"agents": []holdfast.AgentState{{
			Generation: 1, Runtime: "claude", AgentID: "0c5f3c1e-9f0b-4b52-a9a5-0f7a52b7d7f1", Health: holdfast.HealthCurrent, Version: "2.1.0", Turns: 1, Upto: 12,
		}}},
		"list-turns": map[string]any{"turns": []holdfast.Turn{turn}},
		"get-turn":   map[string]any{"turn": turn},
		"get-usage":  holdfast.SessionUsage{Usage: *turn.Usage, Turns: 1, Calls: 2, DurationMS: 1500},
		"read-events": map[string]any{"events": []holdfast.Event{{
			Session: exampleID, Seq: 2, Type: holdfast.EventMessageUser, Turn: exampleTurn, Data: json.RawMessage(`{"parts":[{"type":"text","text":"write hello.txt"}]}`), Time: at,
		}}, "next": 2},
		"read-transcript": map[string]any{"entries": []holdfast.TranscriptEntry{
			{Seq: 2, Turn: exampleTurn, Role: holdfast.RoleUser, Text: "write hello.txt", Time: at},
			{Seq: 8, Turn: exampleTurn, Role: holdfast.RoleAssistant, Text: "done", Time: at},
		}},
		"list-files": holdfast.FileList{Entries: []holdfast.FileInfo{file}}, "read-file": holdfast.FileList{Entries: []holdfast.FileInfo{file}},
		"write-file":   map[string]any{"file": file},
		"exec":         holdfast.ExecResult{Class: holdfast.ExitOK, Stdout: []byte("hello\n"), Stderr: []byte("warning\n"), DurationMS: 1.4},
		"list-agents":  map[string]any{"agents": []holdfast.Agent{agent}},
		"deploy-agent": map[string]any{"agent": holdfast.Deployed{Agent: agent, Notices: []string{`.claude/settings.json: "model" is ignored: it means nothing here`}}},
		"get-agent":    map[string]any{"agent": agent}, "update-agent": map[string]any{"agent": agent},
		"list-agent-versions": map[string]any{"versions": []holdfast.AgentVersion{{
			Agent: "reviewer", Number: 2, ID: agent.VersionID, CreatedAt: at, Settings: holdfast.AgentSettings{Mode: holdfast.ModePlan},
			Files: []holdfast.AgentFile{{Path: "CLAUDE.md", Size: 10, Mode: 0o644, SHA256: strings.Repeat("0a", 32)}},
		}}},
		"list-containers": box, "stop-containers": box, "list-snapshots": exampleStore(), "collect-snapshots": exampleCollected(), "verify-snapshots": exampleVerified(),
		"prune-containers": holdfast.PrunedContainers{DryRun: true, Pruned: []holdfast.Pruned{{
			Name: "s-" + exampleID, Driver: "local", Session: exampleID, Reason: "no session uses the box",
		}}},
		"list-approvals":  holdfast.ApprovalPage{Approvals: []holdfast.Approval{exampleApproval()}, Next: "YTE"},
		"get-approval":    map[string]any{"approval": exampleApproval()},
		"answer-approval": map[string]any{"approval": exampleAnswered()}, "list-rules": exampleRules(), "revoke-rule": exampleRules(),
		"list-keys": map[string]any{"keys": []holdfast.Key{key}}, "revoke-key": map[string]any{"key": key},
		"list-secrets": map[string]any{"secrets": []holdfast.Secret{secret}}, "rotate-secrets": map[string]any{"secrets": []holdfast.Secret{secret}},
		"set-secret": map[string]any{"secret": secret}, "remove-secret": map[string]any{"secrets": []holdfast.Secret{}},
		"create-key":  map[string]any{"key": key, "secret": "hfk_5f1c0a9e7b3d2468_…"},
		"list-models": map[string]any{"models": exampleModels()}, "show-server": map[string]any{"server": exampleServer()},
		"read-audit-head": holdfast.AuditHead{
			Chain: 7, N: 25, Hash: strings.Repeat("0a", 32), Time: at, Signature: strings.Repeat("0b", 64), PublicKey: strings.Repeat("0c", 32),
		},
		"healthz": health, "readyz": health,
	}
}

// streamExample returns the beginning of an event stream of an operation, as an example.
func streamExample(operation string) string {
	if operation == "exec" {
		return "event: stdout\ndata: {\"data\":\"aGVsbG8K\"}\n\nevent: exit\ndata: {\"class\":\"ok\",\"exit_code\":0}\n\n"
	}
	return "id: 2\nevent: message.user\ndata: {\"session_id\":\"" + exampleID + "\",\"seq\":2,\"type\":\"message.user\"}\n\n: ping\n\n"
}

// problemExamples returns one example problem document of each kind.
func problemExamples() map[string]*huma.Example {
	out := map[string]*huma.Example{}
	for kind, e := range map[holdfast.Kind]*holdfast.Error{
		holdfast.KindInvalid:         holdfast.Errorf("", "session.list", `the word "asleep" is not a session status`).WithHint("use starting, active, paused, error or ended"),
		holdfast.KindUnauthenticated: holdfast.Errorf("", "request", "the request carries no token").WithHint("set HOLDFAST_TOKEN to a key (holdfast key create)"),
		holdfast.KindDenied:          holdfast.Errorf("", "request", "the key may read only").WithHint("use another key, which the server's owner can make on its machine: env -u HOLDFAST_TOKEN holdfast key create --context local --scope write"),
		holdfast.KindNotFound:        holdfast.Errorf("", "store", "there is no session %q", exampleID).WithHint("holdfast session list shows the sessions"),
		holdfast.KindConflict:        holdfast.Errorf("", "session.pause", `session %s is "paused"`, exampleID).WithHint("only an active session can be paused"),
		holdfast.KindGone:            holdfast.Errorf("", "session", "session %s has ended", exampleID).WithHint("the session's log stays readable: holdfast session events %s", exampleID),
		holdfast.KindTooLarge:        holdfast.Errorf("", "files", "the request body is larger than 67108864 bytes").WithHint("split it"),
		holdfast.KindBusy:            holdfast.Errorf("", "request", "too many requests with this key").WithHint("send the request again in a moment"),
		holdfast.KindInternal:        holdfast.Errorf("", "request", "the server failed to handle this request").WithHint("the server's log has the details"),
		holdfast.KindUnavailable:     holdfast.Errorf("", "box", "all boxes are in use").WithHint("raise max_boxes, or end sessions"),
	} {
		e.Kind = kind
		p := problem.Of(e)
		p.RequestID = "01890a5d-ac97-7000-8000-000000000001"
		out[string(kind)] = &huma.Example{Summary: http.StatusText(p.Status), Value: p.Problem}
	}
	return out
}

// illustrate adds the examples to the document, and makes all operations refer to one shared
// description of the problem answer.
func illustrate(doc *huma.OpenAPI) {
	requests, answers := requestExamples(), answerExamples()
	maps.Copy(answers, workspaceAnswers())
	for _, op := range Operations(doc) {
		if media := jsonBody(op); media != nil {
			media.Example = requests[op.OperationID]
		}
		for status, r := range op.Responses {
			if status == "default" {
				continue
			}
			if media := r.Content["application/json"]; media != nil {
				media.Example = answers[op.OperationID]
			}
			if media := r.Content["text/event-stream"]; media != nil {
				media.Example = streamExample(op.OperationID)
			}
		}
		shareProblem(doc, op)
	}
}

func shareProblem(doc *huma.OpenAPI, op *huma.Operation) {
	r := op.Responses["default"]
	if r == nil || r.Content[problem.MediaType] == nil {
		return
	}
	if doc.Components.Responses == nil {
		r.Description = "A problem: what failed, of which kind, and what helps."
		r.Content[problem.MediaType].Examples = problemExamples()
		doc.Components.Responses = map[string]*huma.Response{"Problem": r}
	}
	op.Responses["default"] = &huma.Response{Ref: "#/components/responses/Problem"}
}
