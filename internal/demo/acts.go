package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// asked is the text in front of a script for a real model.
const asked = "Do the steps of this script in order: one tool call for each, with exactly its input, and nothing else. Then answer with the text of \"say\". "

func (s *show) script(intro string, steps ...child.Step) string {
	if s.cfg.Live {
		intro += asked
	}
	return intro + child.Script(steps...)
}

// turn sends a message, waits for the end of its turn, and returns the end and the results of the turn's tools.
func (s *show) turn(ctx context.Context, text string) (holdfast.TurnEnded, []holdfast.ToolFinished, error) {
	s.said = append(s.said, text)
	st, err := s.api.Stream(ctx, s.session, holdfast.SendMessage{Text: text})
	if err != nil {
		return holdfast.TurnEnded{}, nil, err
	}
	defer st.Close()
	var tools []holdfast.ToolFinished
	for ev, err := range st.Events(ctx) {
		if err != nil {
			return holdfast.TurnEnded{}, tools, err
		}
		if ev.Type == holdfast.EventToolFinished {
			var d holdfast.ToolFinished
			if err := ev.Decode(&d); err != nil {
				return holdfast.TurnEnded{}, tools, err
			}
			tools = append(tools, d)
		}
		if ev.EndsTurn() {
			var end holdfast.TurnEnded
			if err := ev.Decode(&end); err != nil {
				return end, tools, err
			}
			if ev.Type != holdfast.EventTurnCompleted {
				return end, tools, fmt.Errorf("the turn ended with %s: %s", ev.Type, end.Message)
			}
			return end, tools, nil
		}
	}
	return holdfast.TurnEnded{}, tools, errors.New("the event stream ended before the end of the turn")
}

func (s *show) file(ctx context.Context, name string) (string, error) {
	return fileOf(ctx, s.api.Client, s.session, name)
}

func fileOf(ctx context.Context, api *client.Client, id holdfast.SessionID, name string) (string, error) {
	r, err := api.ReadFile(ctx, id, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

const note = "the tide is out"

func (s *show) work(ctx context.Context) (string, error) {
	_, tools, err := s.turn(ctx, s.script("Please write down that the tide is out, and count the lines of the note. ",
		child.Write("notes.txt", note+"\n"),
		child.Bash("id -un; wc -l notes.txt"), child.Say("The note is written.")))
	if err != nil {
		return "", err
	}
	got, err := s.file(ctx, "notes.txt")
	if err == nil && got != note+"\n" {
		err = fmt.Errorf("the session's file notes.txt holds %q, not %q", got, note+"\n")
	}
	if n := len(tools); err == nil && n != 2 && !(s.cfg.Live && n > 0) {
		err = fmt.Errorf("the turn finished %d tool calls, not 2", n)
	}
	if err != nil {
		return "", err
	}
	return "in the box: " + strings.Join(strings.Fields(tools[len(tools)-1].Content), " "), nil
}

func (s *show) box(ctx context.Context) (holdfast.Container, error) {
	list, err := s.api.Containers(ctx)
	if err != nil {
		return holdfast.Container{}, err
	}
	for _, c := range list {
		if c.Session == s.session && c.PID > 0 {
			return c, nil
		}
	}
	return holdfast.Container{}, errors.New("the demo's session has no running box")
}

func (s *show) killBox(ctx context.Context) (string, error) {
	c, err := s.box(ctx)
	if err != nil {
		return "", err
	}
	if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d of box %s", c.PID, c.ID), nil
}

// memory checks that a turn's model received the whole conversation. The scripted model counts
// the messages in its answer; for a real model the log tells how long the conversation was.
func (s *show) memory(ctx context.Context, end holdfast.TurnEnded, tools int) (string, error) {
	if !s.cfg.Live {
		return "model: " + end.Result, s.sentence(end.Result, tools)
	}
	before, shown := 0, 0
	for ev, err := range s.api.AllEvents(ctx, s.session, 0) {
		if err != nil {
			return "", err
		}
		if ev.Type != holdfast.EventModelRequest {
			continue
		}
		var r holdfast.ModelRequest
		if err := ev.Decode(&r); err != nil {
			return "", err
		}
		switch {
		case r.Status != holdfast.StatusOK:
		case ev.Seq < end.MessageSeq:
			before = max(before, r.Messages)
		case shown == 0:
			shown = r.Messages
		}
	}
	// The model must get two more messages than before: its last answer and this question.
	if shown < before+2 {
		return "", fmt.Errorf("the model was shown only %d messages, after %d in the turn before", shown, before)
	}
	return fmt.Sprintf("the model was shown %d messages, after %d before; it says: %s", shown, before, strings.Join(strings.Fields(end.Result), " ")), nil
}

// sentence checks the answer of the scripted model, which counts the messages and tool results
// that it receives.
func (s *show) sentence(got string, tools int) error {
	quote := func(t string) string {
		if r := []rune(t); len(r) > 60 {
			return string(r[:60])
		}
		return t
	}
	n := len(s.said)
	for _, want := range []string{
		fmt.Sprintf("You have sent %d messages.", n), quote(s.said[0]), quote(s.said[n-1]),
		fmt.Sprintf("I have seen %d tool results.", tools),
	} {
		if !strings.Contains(got, want) {
			return fmt.Errorf("the model answered %q, which does not contain %q", got, want)
		}
	}
	return nil
}

func (s *show) remember(ctx context.Context) (string, error) {
	end, _, err := s.turn(ctx, "What do you remember?")
	if err != nil {
		return "", err
	}
	said, err := s.memory(ctx, end, 2)
	if err != nil {
		return "", err
	}
	got, err := s.file(ctx, "notes.txt")
	if err == nil && got != note+"\n" {
		err = fmt.Errorf("the session's file notes.txt holds %q, not %q", got, note+"\n")
	}
	return said, err
}

const slow = "echo started | tee begun.txt; sleep 2; echo once >> ledger.txt; echo finished"

func (s *show) killServer(ctx context.Context) (string, error) {
	text := s.script("Work for a while. ", child.Bash(slow), child.Say("Done, once."))
	s.said = append(s.said, text)
	sent, err := s.api.Send(ctx, s.session, holdfast.SendMessage{Text: text})
	if err != nil {
		return "", err
	}
	for ev, err := range s.api.Follow(ctx, s.session, sent.Seq) {
		if err != nil {
			return "", err
		}
		if ev.Type == holdfast.DeltaToolOutput && bytes.Contains(ev.Data, []byte("started")) {
			break
		}
		if ev.Type == holdfast.EventToolStarted && s.cfg.Runtime != "" { // a CLI does not stream tool output
			if err := s.begun(ctx); err != nil {
				return "", err
			}
			break
		}
		if ev.EndsTurn() {
			return "", errors.New("the turn ended before the demo could kill the server during the turn's tool call")
		}
	}
	s.api.Kill()
	return fmt.Sprintf("process %d, while the tool sleeps; the box goes on", s.api.PID), nil
}

// begun waits until the box has started the slow tool.
func (s *show) begun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for clock.Pause(ctx, 20*time.Millisecond) == nil {
		if got, err := s.file(ctx, "begun.txt"); err == nil && got == "started\n" {
			return nil
		}
	}
	return errors.New("the tool call did not begin in the box within 10 s")
}

func (s *show) recover(ctx context.Context) (string, error) {
	if _, err := s.start(ctx); err != nil {
		return "", err
	}
	patience := 30 * time.Second
	if s.cfg.Live {
		patience = 3 * time.Minute
	}
	deadline, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ev, err := range s.api.Follow(deadline, s.session, 0) {
		if err != nil {
			return "", err
		}
		if !ev.EndsTurn() {
			continue
		}
		var end holdfast.TurnEnded
		if err := ev.Decode(&end); err != nil {
			return "", err
		}
		if end.Number != 3 {
			continue
		}
		if ev.Type != holdfast.EventTurnCompleted || end.Result != "Done, once." && !s.cfg.Live {
			return "", fmt.Errorf("turn 3 ended with %s instead of completing as expected: %s %s", ev.Type, end.Result, end.Message)
		}
		break
	}
	got, err := s.file(ctx, "ledger.txt")
	if err == nil && got != "once\n" {
		err = fmt.Errorf("the line that the tool writes occurs %d times in ledger.txt, not once", strings.Count(got, "once"))
	}
	return "ledger.txt has the tool's line exactly once", err
}

func (s *show) pause(ctx context.Context) (string, error) {
	if _, err := s.api.PauseSession(ctx, s.session, holdfast.EndSession{}); err != nil {
		return "", err
	}
	r, err := s.api.ResumeSession(ctx, s.session, holdfast.ResumeSession{})
	if err != nil {
		return "", err
	}
	if r.Receipt == nil {
		return "", errors.New("the resumed session has no receipt")
	}
	return receiptLine(*r.Receipt), nil
}

func receiptLine(r holdfast.Receipt) string {
	return fmt.Sprintf("receipt: from %s, tier %s (%s path), %d turns from %d events, files %s, box %s", r.From, r.Tier, r.Path, r.Turns, r.Events, r.Files, r.Box)
}

func (s *show) rememberAll(ctx context.Context) (string, error) {
	end, _, err := s.turn(ctx, "And now?")
	if err != nil {
		return "", err
	}
	return s.memory(ctx, end, 3)
}

// restore removes the workspace's files while the session is paused, and resumes the session, which restores them.
func (s *show) restore(ctx context.Context) (string, error) {
	if _, err := s.api.PauseSession(ctx, s.session, holdfast.EndSession{}); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(s.data(), "sessions", string(s.session), "workspace")); err != nil {
		return "", err
	}
	r, err := s.api.ResumeSession(ctx, s.session, holdfast.ResumeSession{})
	if err != nil {
		return "", err
	}
	if r.Receipt == nil || r.Receipt.Files != holdfast.FilesRestored {
		return "", fmt.Errorf("resuming the session did not restore its files: %+v", r.Receipt)
	}
	return receiptLine(*r.Receipt), s.holds(ctx, s.session, map[string]string{"notes.txt": note + "\n", "ledger.txt": "once\n"})
}

// holds checks the content of files of a session; an empty content stands for a file that does not exist.
func (s *show) holds(ctx context.Context, id holdfast.SessionID, files map[string]string) error {
	for name, want := range files {
		got, err := fileOf(ctx, s.api.Client, id, name)
		switch {
		case want == "" && holdfast.IsKind(err, holdfast.KindNotFound):
		case err != nil:
			return err
		case got != want || want == "":
			return fmt.Errorf("the session's file %s holds %q, which is not what was expected", name, got)
		}
	}
	return nil
}

// checkpoint returns the checkpoint at the end of a turn.
func (s *show) checkpoint(ctx context.Context, number int64) (holdfast.CheckpointID, error) {
	for cp, err := range s.api.AllCheckpoints(ctx, s.session) {
		if err != nil {
			return "", err
		}
		if cp.Number == number && cp.Reason == holdfast.CheckpointTurn {
			return cp.ID, nil
		}
	}
	return "", fmt.Errorf("turn %d left no checkpoint", number)
}

func (s *show) fork(ctx context.Context) (string, error) {
	at, err := s.checkpoint(ctx, 1)
	if err != nil {
		return "", err
	}
	fork, err := s.api.Fork(ctx, s.session, holdfast.ForkSession{At: at, Title: "fork"}, "")
	if err != nil {
		return "", err
	}
	if fork.CompletedTurns != 1 {
		return "", fmt.Errorf("the forked session has %d completed turns, not 1", fork.CompletedTurns)
	}
	if err := s.holds(ctx, fork.ID, map[string]string{"notes.txt": note + "\n", "ledger.txt": ""}); err != nil {
		return "", err
	}
	_, err = s.api.EndSession(ctx, fork.ID, holdfast.EndSession{})
	return fmt.Sprintf("session %s: turn 1, notes.txt, and no ledger.txt, which turn 3 wrote", fork.ID), err
}

func (s *show) rewind(ctx context.Context) (string, error) {
	to, err := s.checkpoint(ctx, 2)
	if err != nil {
		return "", err
	}
	back, err := s.api.Rewind(ctx, s.session, holdfast.RewindSession{To: to})
	if err != nil {
		return "", err
	}
	if err := s.holds(ctx, s.session, map[string]string{"notes.txt": note + "\n", "ledger.txt": ""}); err != nil {
		return "", err
	}
	again, err := s.api.Rewind(ctx, s.session, holdfast.RewindSession{To: back.Rewound.Kept})
	if err != nil {
		return "", err
	}
	if err := s.holds(ctx, s.session, map[string]string{"ledger.txt": "once\n"}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d turns, without ledger.txt; then %d turns, with it", back.Session.CompletedTurns, again.Session.CompletedTurns), nil
}

func (s *show) escape(ctx context.Context) (string, error) {
	secret := filepath.Join(s.data(), "token")
	outside := filepath.Join(s.cfg.Dir, "escaped")
	_, port, _ := strings.Cut(strings.TrimPrefix(s.api.URL, "http://"), ":")
	tries := []string{
		fmt.Sprintf("cat %s && echo READ-A-SECRET", secret),
		fmt.Sprintf("echo x > %s && echo WROTE-OUTSIDE", outside),
		"touch /usr/escaped && echo WROTE-OUTSIDE",
		fmt.Sprintf("(exec 3<>/dev/tcp/127.0.0.1/%s) && echo REACHED-THE-SERVER", port),
		"(exec 3<>/dev/tcp/169.254.169.254/80) && echo REACHED-METADATA",
		"mount -t tmpfs none /mnt && echo MOUNTED",
		"unshare -U true && echo NEW-NAMESPACE",
	}
	got, who, err := s.tryOut(ctx, strings.Join(tries, "\n"))
	if err != nil {
		return "", err
	}
	for _, won := range []string{"READ-A-SECRET", "WROTE-OUTSIDE", "REACHED-THE-SERVER", "REACHED-METADATA", "MOUNTED", "NEW-NAMESPACE"} {
		if strings.Contains(got, won) {
			return "", fmt.Errorf("an escape from the box succeeded: %s: %s", won, got)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		return "", fmt.Errorf("a program in the box created the file %s outside of the box", outside)
	}
	var said []string
	for line := range strings.Lines(got) {
		if line = strings.TrimSpace(line); line != "" {
			said = append(said, line)
		}
	}
	return fmt.Sprintf("%d attempts%s, 0 successes; the box said:\n%s", len(tries), who, strings.Join(said[:min(len(said), 8)], "\n")), nil
}

// tryOut lets the agent run a command that tries to break out of its box, and returns the
// output. If a real model does not make exactly one call, the command also runs in the same box by exec.
func (s *show) tryOut(ctx context.Context, command string) (printed, who string, err error) {
	_, tools, err := s.turn(ctx, s.script("Try to get out. ", child.Bash(command), child.Say("I stayed inside.")))
	switch {
	case err != nil:
		return "", "", err
	case len(tools) == 1:
		return tools[0].Content, "", nil
	case !s.cfg.Live:
		return "", "", fmt.Errorf("the turn finished %d tool calls, not 1", len(tools))
	}
	for _, t := range tools {
		printed += t.Content
	}
	res, err := s.api.Exec(ctx, s.session, holdfast.ExecRequest{Argv: []string{"bash", "-c", command}})
	return printed + string(res.Stdout) + string(res.Stderr), " by exec, as the model made none or others", err
}

func (s *show) receipts(ctx context.Context) (string, error) {
	var lines []string
	for ev, err := range s.api.AllEvents(ctx, s.session, 0) {
		if err != nil {
			return "", err
		}
		switch ev.Type {
		case holdfast.EventSessionResumed:
			var r holdfast.Receipt
			if err := ev.Decode(&r); err != nil {
				return "", err
			}
			lines = append(lines, fmt.Sprintf("event %d: %s", ev.Seq, receiptLine(r)))
		case holdfast.EventAgentStarted:
			var a holdfast.AgentStarted
			if err := ev.Decode(&a); err != nil {
				return "", err
			}
			lines = append(lines, fmt.Sprintf("event %d: %s %s, tier %s, %d of %d turns loaded", ev.Seq, a.Runtime, a.Version, a.Tier, a.Turns, a.Of))
		case holdfast.EventBoxLost, holdfast.EventBoxStarted:
			lines = append(lines, fmt.Sprintf("event %d: %s", ev.Seq, ev.Type))
		}
	}
	if len(lines) == 0 {
		return "", errors.New("the session's log has no event of a resume, an agent's start or a box")
	}
	return strings.Join(lines, "\n"), nil
}
