// Package demo shows the main purpose of Holdfast on a real server in about a minute: a session
// survives the death of its box and of its server without losing a message or a file, or running
// a tool twice.
//
// cmd/holdfast uses it. It starts the holdfast binary as a child process and uses it through the
// client, as any user would. Invariant: every step that it prints as done was checked against
// the server's answers, the files and the log.
package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// Config configures a demo.
type Config struct {
	// Binary is the holdfast program, Env the environment of its servers.
	Binary string
	Env    []string
	// Dir is an empty directory for all files of the demo; the caller removes it.
	Dir string
	// Out receives one line for each step; nil discards them.
	Out   io.Writer
	Style Style
	// Runtime is the runtime of the session; empty means the server's own agent loop. Runtimes is
	// the directory of installed agent CLIs, for a runtime that needs one.
	Runtime, Runtimes string
	// Live uses a real model, which the environment names. The model is asked to do the steps that the
	// scripted model would do, and only the files and the log are checked, not its answers.
	Live bool
	// Pack returns a tar archive of an agent's folder.
	Pack func(dir string) (io.ReadCloser, error)
}

// Style holds the escape sequences of the lines: empty, or colours on a terminal.
type Style struct{ Good, Bad, Dim, End string }

// The outcomes of a step.
const (
	Done   = "ok"
	Failed = "failed"
)

// Step is one step of the demo with its outcome.
type Step struct {
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
	MS      float64 `json:"duration_ms"`
}

// Result is the result of the whole demo.
type Result struct {
	Steps []Step  `json:"steps"`
	OK    bool    `json:"ok"`
	MS    float64 `json:"duration_ms"`
}

// show is a running demo.
type show struct {
	cfg    Config
	result Result

	api     *child.Server
	session holdfast.SessionID
	// said are the messages that were sent, in order.
	said []string
}

// Run plays the demo. It stops at the first step that fails.
func Run(ctx context.Context, cfg Config) Result {
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	s := &show{cfg: cfg, result: Result{OK: true}}
	began := time.Now()
	defer s.close()
	steps := []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"start a server on a free port", s.first},
		{"deploy an agent", s.deploy},
		{"create a session", s.create},
		{"turn 1: the agent writes a file and runs a command in its box", s.work},
		{"kill the box (SIGKILL)", s.killBox},
		{"turn 2: it still knows the conversation, and the file is there", s.remember},
		{"kill the server (SIGKILL) in the middle of a running tool", s.killServer},
		{"restart the server: the turn completes, the tool ran once", s.recover},
		{"pause, and resume: nothing is lost", s.pause},
		{"turn 4: every message is still known", s.rememberAll},
		{"remove the workspace, and resume: the files come back from the snapshot", s.restore},
		{"fork at turn 1: the new session has the files and the conversation of then", s.fork},
		{"rewind to turn 2, and back again", s.rewind},
		{"an escape attempt is denied: a host secret, a write outside, the network", s.escape},
		{"the resume receipts in the log", s.receipts},
		{"end the session: no box, no process is left", s.end},
	}
	for _, st := range steps {
		at := time.Now()
		detail, err := st.do(ctx)
		step := Step{Name: st.name, Outcome: Done, Detail: detail, MS: clock.Milliseconds(time.Since(at))}
		if err != nil {
			step.Outcome, step.Detail = Failed, err.Error()
		}
		s.tell(step)
		if step.Outcome == Failed {
			s.result.OK = false
			break
		}
	}
	s.result.MS = clock.Milliseconds(time.Since(began))
	return s.result
}

func (s *show) tell(st Step) {
	s.result.Steps = append(s.result.Steps, st)
	c := s.cfg.Style
	mark := c.Good + "ok  " + c.End
	if st.Outcome == Failed {
		mark = c.Bad + "FAIL" + c.End
	}
	fmt.Fprintf(s.cfg.Out, "%s %8.1f ms  %s\n", mark, st.MS, st.Name)
	for line := range strings.Lines(st.Detail) {
		fmt.Fprintf(s.cfg.Out, "%s                   %s%s\n", c.Dim, strings.TrimRight(line, "\n"), c.End)
	}
}

func (s *show) data() string { return filepath.Join(s.cfg.Dir, "data") }

// first puts the agent CLIs of Config.Runtimes into the data directory, and starts the first server.
func (s *show) first(ctx context.Context) (string, error) {
	if s.cfg.Runtimes != "" {
		if err := child.Lend(s.cfg.Runtimes, s.data()); err != nil {
			return "", err
		}
	}
	return s.start(ctx)
}

func (s *show) start(ctx context.Context) (string, error) {
	var err error
	s.api, err = child.Start(ctx, child.Config{
		Binary: s.cfg.Binary, Env: s.cfg.Env, Data: s.data(), Log: filepath.Join(s.cfg.Dir, "server.log"),
		Args: []string{"--set", "landlock=best-effort"},
	})
	if err != nil {
		return "", err
	}
	server, err := s.api.Server(ctx)
	said := fmt.Sprintf("%s, process %d, driver %s", s.api.URL, s.api.PID, server.Driver)
	if missing := server.Boxes.Missing; len(missing) > 0 {
		for i, m := range missing {
			missing[i], _, _ = strings.Cut(m, ": ")
		}
		said += fmt.Sprintf("\nits boxes are without %s, which the demo allows; for them: %s", strings.Join(missing, ", "), server.Boxes.Hint)
	}
	return said, err
}

func (s *show) close() {
	if s.api != nil && !s.api.Terminate(30*time.Second) {
		s.tell(Step{Name: "stop the server", Outcome: Failed, Detail: "it did not end within 30 s of SIGTERM"})
		s.result.OK = false
	}
}

func (s *show) deploy(ctx context.Context) (string, error) {
	dir := filepath.Join(s.cfg.Dir, "agent")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("# Demo agent\n\nKeep notes in notes.txt.\n"), 0o644); err != nil {
		return "", err
	}
	tar, err := s.cfg.Pack(dir)
	if err != nil {
		return "", err
	}
	defer tar.Close()
	a, err := s.api.DeployAgent(ctx, "demo", tar)
	return fmt.Sprintf("%s version %d, %.19s…", a.Name, a.Version, a.VersionID), err
}

func (s *show) create(ctx context.Context) (string, error) {
	ses, err := s.api.CreateSession(ctx, holdfast.CreateSession{Agent: "demo", Title: "demo", Runtime: s.cfg.Runtime}, "")
	s.session = ses.ID
	return fmt.Sprintf("%s, %s, runtime %s, model %s; no box yet", ses.ID, ses.Trust, ses.Runtime, ses.Model), err
}

func (s *show) end(ctx context.Context) (string, error) {
	if _, err := s.api.EndSession(ctx, s.session, holdfast.EndSession{}); err != nil {
		return "", err
	}
	list, err := s.api.Containers(ctx)
	if err == nil && len(list) != 0 {
		err = fmt.Errorf("%d boxes are left after the demo's sessions ended", len(list))
	}
	return "", err
}
