package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/retell"
)

// claudeTurns is the length of the conversation whose last turn's input is compared.
const claudeTurns = 20

// word is a script for a turn of one word, without delay.
const word = `<script>[{"say":"hello"}]</script>`

// work returns a script for a typical turn of an agent: it thinks, runs two commands and reports.
func work(n int) string {
	cat := `seq 1 400 | tail -c 1500`
	return fmt.Sprintf(`Part %d: <script>[{"think":"part %d needs a look at the list","tool":"Bash","input":{"command":"%s"}},`+
		`{"think":"and another","tool":"Bash","input":{"command":"echo %d; %s"}},{"say":"Part %d is done: the list is as it should be."}]</script>`,
		n, n, cat, n, cat, n)
}

// claude measures sessions of the real CLI and the CLI alone in alternation, both against a
// model that answers at once.
func (p *pass) claude(ctx context.Context) error {
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	model := double.Serve(l, double.Config{})
	defer model.Close()
	if err := child.Lend(p.cfg.Runtimes, filepath.Join(p.dir, "claude")); err != nil {
		return err
	}
	p.cfg.Env = append(slices.Clip(p.cfg.Env), "ANTHROPIC_API_KEY=one-that-the-double-takes")
	s, err := p.serve(ctx, "claude", "--set", "anthropic.url="+model.URL(), "--set", "default_model=anthropic/claude-bench", "--set", "claude.warm=1")
	if err != nil {
		return err
	}
	defer s.stop()
	b := &bare{argv: p.cfg.Claude, dir: filepath.Join(p.dir, "bare"), url: model.URL()}
	for _, measure := range []func(context.Context, *subject, *bare) error{p.claudeLive, p.claudePooled, p.claudeResumed} {
		if err := measure(ctx, s, b); err != nil {
			return err
		}
	}
	return p.claudeInput(ctx, s, model, b)
}

func (s *subject) createClaude(ctx context.Context) (holdfast.SessionID, error) {
	ses, err := s.CreateSession(ctx, holdfast.CreateSession{Runtime: "claude"}, "")
	return ses.ID, err
}

// beside creates a session, and starts the CLI without a server, in a conversation with the id own.
func (s *subject) beside(ctx context.Context, b *bare) (id holdfast.SessionID, own string, alone *cli, err error) {
	if id, err = s.createClaude(ctx); err != nil {
		return id, "", nil, err
	}
	if own, err = holdfast.NewUUID(time.Now(), rand.Reader); err != nil {
		return id, "", nil, err
	}
	alone, err = b.start(ctx, "--session-id", own)
	return id, own, alone, err
}

// claudeLive measures a message to its first token in a session whose CLI runs, and a
// prompt to a CLI that runs alone.
func (p *pass) claudeLive(ctx context.Context, s *subject, b *bare) error {
	alone := Figure{Name: "the CLI alone: prompt → first token, live", Unit: "ms", Judge: "p50"}
	live := Figure{Name: "claude: message → first token, live", Unit: "ms", Judge: "p50", Rule: "the CLI alone + 5 ms"}
	id, _, cli, err := s.beside(ctx, b)
	if err != nil {
		return err
	}
	for i := range 35 {
		took, err := cli.turn(word)
		if err != nil {
			return errors.Join(err, cli.end())
		}
		_, ours, err := s.firstOf(ctx, id, word)
		if err != nil {
			return errors.Join(err, cli.end())
		}
		if i >= 5 {
			alone.Samples, live.Samples = append(alone.Samples, took), append(live.Samples, ours)
		}
	}
	p.add(alone)
	live.Gate = alone.Value() + 5
	p.add(live)
	return cli.end()
}

// claudePooled measures the first message of a session whose agent was started ahead.
func (p *pass) claudePooled(ctx context.Context, s *subject, _ *bare) error {
	pooled := Figure{Name: "claude: first message → first token, from the pool", Unit: "ms", Judge: "p50", Gate: 250, Rule: "250 ms"}
	for range 7 {
		id, err := s.createClaude(ctx)
		if err == nil {
			err = s.warm(ctx, id)
		}
		if err != nil {
			return err
		}
		_, took, err := s.firstOf(ctx, id, word)
		if err != nil {
			return err
		}
		pooled.Samples = append(pooled.Samples, took)
	}
	p.add(pooled)
	return nil
}

// warm waits until the session's agent was started ahead.
func (s *subject) warm(ctx context.Context, id holdfast.SessionID) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ev, err := range s.Follow(ctx, id, 0) {
		if err != nil || ev.Type == holdfast.EventAgentStarted {
			return err
		}
	}
	return io.ErrUnexpectedEOF
}

// claudeResumed measures a message to a session whose box was stopped, and a prompt to a CLI
// that is started alone with its earlier conversation.
func (p *pass) claudeResumed(ctx context.Context, s *subject, b *bare) error {
	alone := Figure{Name: "the CLI alone: start → first token, resumed", Unit: "ms", Judge: "p50"}
	f := Figure{Name: "claude: message → first token, resumed", Unit: "ms", Judge: "p50", Rule: "the CLI alone + 50 ms"}
	id, own, cli, err := s.beside(ctx, b)
	if err != nil {
		return err
	}
	for i := range 25 {
		_, err := cli.turn(word)
		if err == nil {
			err = s.Turn(ctx, id, word)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("turn %d failed: %w", i+1, err), cli.end())
		}
	}
	if err := cli.end(); err != nil {
		return err
	}
	for range 9 {
		began := time.Now()
		cli, err := b.start(ctx, "--resume", own)
		if err != nil {
			return err
		}
		_, err = cli.turn(word)
		alone.Samples = append(alone.Samples, clock.Milliseconds(cli.first.Sub(began)))
		if err = errors.Join(err, cli.end()); err != nil {
			return err
		}
		if _, err := s.StopContainers(ctx, holdfast.StopContainers{IDs: []string{string(id.Box())}}); err != nil {
			return err
		}
		_, took, err := s.firstOf(ctx, id, word)
		if err != nil {
			return err
		}
		f.Samples = append(f.Samples, took)
	}
	if err := s.resumedAs(ctx, id, holdfast.TierOwn, len(f.Samples)); err != nil {
		return err
	}
	p.add(alone)
	f.Gate = alone.Value() + 50
	p.add(f)
	return nil
}

// resumedAs checks that the last n starts of an agent used a resume tier.
func (s *subject) resumedAs(ctx context.Context, id holdfast.SessionID, tier holdfast.Tier, n int) error {
	var tiers []holdfast.Tier
	for ev, err := range s.AllEvents(ctx, id, 0) {
		if err != nil {
			return err
		}
		if ev.Type == holdfast.EventAgentStarted {
			var st holdfast.AgentStarted
			if err := ev.Decode(&st); err != nil {
				return err
			}
			tiers = append(tiers, st.Tier)
		}
	}
	if len(tiers) < n || slices.ContainsFunc(tiers[len(tiers)-n:], func(t holdfast.Tier) bool { return t != tier }) {
		return fmt.Errorf("the agent was started with the tiers %v, the last %d of which are not all %s", tiers, n, tier)
	}
	return nil
}

// claudeInput compares how much of the last turn's input is not in the provider's cache: with a
// conversation that is resumed natively, and with one that is new in each turn and gets the
// history as text.
func (p *pass) claudeInput(ctx context.Context, s *subject, model *double.Server, b *bare) error {
	id, err := s.createClaude(ctx)
	if err != nil {
		return err
	}
	var prompts []string
	seen := len(model.Requests())
	first := seen
	native := 0
	for n := range claudeTurns {
		c, err := conversation.Read(s.AllEvents(ctx, id, 0))
		if err != nil {
			return err
		}
		prompts = append(prompts, retell.Tell(c, retell.Options{}).Prompt(work(n+1)))
		if n == claudeTurns-1 {
			if _, err := s.StopContainers(ctx, holdfast.StopContainers{IDs: []string{string(id.Box())}}); err != nil {
				return err
			}
		}
		seen = len(model.Requests())
		if err := s.Turn(ctx, id, work(n+1)); err != nil {
			return fmt.Errorf("turn %d failed: %w", n+1, err)
		}
	}
	native = uncached(model.Requests()[first:], seen-first)
	first = len(model.Requests())
	for _, prompt := range prompts {
		seen = len(model.Requests())
		if err := b.once(ctx, prompt); err != nil {
			return err
		}
	}
	told := uncached(model.Requests()[first:], seen-first)
	if native == 0 {
		return errors.New("the last turn sent nothing that the cache does not hold")
	}
	p.add(Figure{Name: "claude: uncached input of turn 20, resumed natively", Unit: "kB", Samples: []float64{float64(native) / 1000}, Judge: "size"})
	p.add(Figure{Name: "claude: uncached input of turn 20, history told as text", Unit: "kB", Samples: []float64{float64(told) / 1000}, Judge: "size"})
	p.add(Figure{Name: "claude: uncached input, told over resumed", Unit: "×", Samples: []float64{float64(told) / float64(native)}, Judge: "size", Gate: 4, More: true, Rule: "4"})
	return nil
}

// uncached returns how many bytes the requests from an index on send that no earlier request has sent.
func uncached(all []double.Request, from int) int {
	n := 0
	for i := from; i < len(all); i++ {
		n += all[i].Uncached(all[:i])
	}
	return n
}
