package direct

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"io"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// gitScript is a shell script that runs git in the box, as the agent could, so its output is as
// trustworthy as the agent. It never reads the configuration, index or hooks of the agent's repository.
//
//go:embed git.sh
var gitScript string

// gitMS is the longest time of a run of gitScript, in milliseconds.
const gitMS = 10 * 60 * 1000

// startCommit stores the workspace's current files as a git commit outside of the agent's repository. If it
// cannot, start is empty and why tells the reason: the files are not a git tree, or the box has no git.
func (w *Work) startCommit(ctx context.Context, id holdfast.SessionID) (start, why string, err error) {
	var out bytes.Buffer
	res, said, err := w.git(ctx, id, &out, "start")
	switch {
	case err != nil:
		return "", "", err
	case res.Class == holdfast.ExitOK && isCommit(strings.TrimSpace(out.String())):
		return strings.TrimSpace(out.String()), "", nil
	}
	return "", said, nil
}

var commitPattern = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

func isCommit(s string) bool { return commitPattern.MatchString(s) }

// Diff writes the changes since the session's start as a patch for git apply, or as a summary. git makes
// it in the box, so it is as trustworthy as the agent. notes are git's remarks, for example on files
// that it could not read. It fails with conflict if no commit was recorded for the session's first files, or if git fails.
func (w *Work) Diff(ctx context.Context, id holdfast.SessionID, format holdfast.DiffFormat, to io.Writer) (notes string, err error) {
	s, err := w.sessions.Session(ctx, id)
	if err != nil {
		return "", err
	}
	if s.Source == nil || s.Source.Start == "" {
		return "", holdfast.Errorf(holdfast.KindConflict, "diff", "session %s did not start from a git repository", id).
			WithHint("start a session with a repository: holdfast session create --from DIR, or copy this session's files out: holdfast cp -r %s:. DIR", id)
	}
	args := []string{"diff", s.Source.Start}
	switch format {
	case holdfast.DiffPatch, "":
		args = append(args, "--binary")
	case holdfast.DiffStat:
		args = append(args, "--stat=100")
	case holdfast.DiffNames:
		args = append(args, "--name-only")
	default:
		return "", holdfast.Errorf(holdfast.KindInvalid, "diff", "%s is not a format of a diff", holdfast.Quote(string(format))).
			WithHint("use patch, stat or names")
	}
	res, said, err := w.git(ctx, id, to, args...)
	switch {
	case err != nil:
		return "", err
	case res.Class != holdfast.ExitOK:
		return "", holdfast.Errorf(holdfast.KindConflict, "diff", "git in the box could not make the diff: it ended with %s, exit code %d: %s", res.Class, res.Code, cmp.Or(said, "git printed no reason")).
			WithHint("compare checkpoints, without git: holdfast session diff %s --from start; or look at the repository: holdfast exec %s -- git status", id, id)
	}
	return said, nil
}

// git runs gitScript in the workspace, and returns the end of its stderr as said.
func (w *Work) git(ctx context.Context, id holdfast.SessionID, stdout io.Writer, args ...string) (res wire.ExecResult, said string, err error) {
	var errs tail
	err = w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		call, err := w.call()
		if err != nil {
			return err
		}
		defer box.Release(call.ID)
		res, err = box.Exec(ctx, call, wire.ExecRequest{
			Argv: append([]string{"sh", "-c", gitScript, "git.sh"}, args...), TimeoutMS: gitMS, KillOnDetach: true,
			// Drop no output, even if it is read slowly.
			Lines: true,
		}, sandbox.ExecOptions{Stdout: stdout, Stderr: &errs})
		return err
	})
	return res, strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(errs.String(), "\uFFFD"), "\x00", "\uFFFD")), err
}

// tail is a writer that keeps the end of what is written to it.
type tail struct{ buf []byte }

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-tailBytes):]...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
