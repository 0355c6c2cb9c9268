package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox"
)

// bare runs the Claude Code CLI without Holdfast: as a process of this machine, in a directory
// of its own, with the model's URL.
type bare struct {
	argv     []string
	dir, url string
}

// cli is a running process of the CLI.
type cli struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	said  sandbox.Tail
	first time.Time
}

func (b *bare) start(ctx context.Context, args ...string) (*cli, error) {
	work := filepath.Join(b.dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	c := &cli{}
	c.cmd = exec.CommandContext(ctx, b.argv[0], slices.Concat(b.argv[1:], []string{
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages",
		"--setting-sources=", "--allowedTools=Bash",
	}, args)...)
	c.cmd.Dir = work
	c.cmd.Env = []string{
		"PATH=" + "/usr/local/bin:/usr/bin:/bin", "HOME=" + b.dir, "LANG=C.UTF-8", "CLAUDE_CONFIG_DIR=" + filepath.Join(b.dir, "config"),
		"ANTHROPIC_BASE_URL=" + b.url, "ANTHROPIC_API_KEY=dummy",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_EAGER_FLUSH=1",
	}
	c.cmd.Stderr = &c.said
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, c.cmd.Start()
}

// once runs one prompt in a new conversation.
func (b *bare) once(ctx context.Context, prompt string) error {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		return err
	}
	c, err := b.start(ctx, "--session-id", id)
	if err != nil {
		return err
	}
	_, err = c.turn(prompt)
	return errors.Join(err, c.end())
}

// turn sends a prompt to the CLI, waits for the result, and returns how many milliseconds passed until the first token.
func (c *cli) turn(prompt string) (float64, error) {
	line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": prompt}})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	c.first = time.Time{}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("the agent CLI ended before it answered: %w: %s", err, c.said.String())
		}
		var m struct {
			Type    string `json:"type"`
			IsError bool   `json:"is_error"`
			Event   struct {
				Delta struct {
					Type string `json:"type"`
				} `json:"delta"`
			} `json:"event"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return 0, err
		}
		if c.first.IsZero() && m.Event.Delta.Type == "text_delta" {
			c.first = time.Now()
		}
		switch {
		case m.Type != "result":
		case m.IsError || c.first.IsZero():
			return 0, fmt.Errorf("the agent CLI answered with an error or without text: %s", line)
		default:
			return clock.Milliseconds(c.first.Sub(began)), nil
		}
	}
}

// end closes the CLI's input, so that the CLI exits.
func (c *cli) end() error {
	err := c.in.Close()
	// The CLI writes a few more lines at its end. Read them, so that it is not blocked by a full pipe.
	_, _ = io.Copy(io.Discard, c.out)
	return errors.Join(err, c.cmd.Wait())
}
