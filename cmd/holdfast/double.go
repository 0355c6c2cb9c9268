package main

import (
	"context"
	"io"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
)

type doubleCmd struct {
	MessagesAPI messagesAPICmd `cmd:"" name:"messages-api" help:"Answer as the Messages API does, with what a script says."`
	Completions completionsCmd `cmd:"" name:"chat-completions" help:"Answer as OpenAI-compatible servers do, with what a script says."`
}

// doubleFlags holds the flags that all doubles of model APIs share.
type doubleFlags struct {
	Listen string `default:"127.0.0.1:0" placeholder:"ADDR" help:"host:port, or unix:/path (${default})."`
	Record string `placeholder:"FILE" help:"Append each request as a line of JSON; keys are not recorded."`

	Models []string `placeholder:"NAME" help:"Names that the list of models has."`
}

type messagesAPICmd struct{ doubleFlags }

type completionsCmd struct{ doubleFlags }

// Help returns the text that the help shows below the one-line description of the command.
func (*completionsCmd) Help() string {
	return `A prompt that holds <script>[…]</script> is obeyed, as with messages-api. Prints one line with the URL when it is ready and runs until it is told to stop.

Example:
  holdfast double chat-completions --listen 127.0.0.1:4198
  OPENAI_BASE_URL=http://127.0.0.1:4198/v1 holdfast serve`
}

// Run serves the Messages API until the command is stopped.
func (m *messagesAPICmd) Run(e *env) error { return m.serve(e, "messages-api") }

// Run serves the chat completions API until the command is stopped.
func (c *completionsCmd) Run(e *env) error { return c.serve(e, "chat-completions") }

// Help returns the text that the help shows below the one-line description of the command.
func (*messagesAPICmd) Help() string {
	return `A prompt that holds <script>[…]</script> is obeyed, one step per request; any other is answered with a sentence that proves what the request remembers. Prints one line with the URL when it is ready and runs until it is told to stop.

Example:
  holdfast double messages-api --listen 127.0.0.1:4199 --record requests.jsonl
  ANTHROPIC_BASE_URL=http://127.0.0.1:4199 ANTHROPIC_API_KEY=dummy claude -p 'say hi'`
}

func (m *doubleFlags) serve(e *env, name string) error {
	record := io.Writer(io.Discard)
	if m.Record != "" {
		f, err := os.OpenFile(m.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return holdfast.Errorf(holdfast.KindInvalid, "double", "requests cannot be recorded to %s: %w", holdfast.Quote(m.Record), err).
				WithHint("--record requests.jsonl")
		}
		defer f.Close()
		record = f
	}
	l, err := double.Listen(m.Listen)
	if err != nil {
		return err
	}
	s := double.Serve(l, double.Config{Record: double.Recorder(record), Models: m.Models})
	stop := context.AfterFunc(e.ctx, func() { _ = s.Close() })
	defer stop()
	// A failed write to stdout is ignored: the double runs whether or not anybody reads its URL.
	_ = e.say(map[string]string{"url": s.URL()}, "the %s double is ready at %s", name, s.URL())
	<-e.ctx.Done()
	return s.Close()
}
