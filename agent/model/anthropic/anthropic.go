package anthropic

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
)

// DefaultURL is the base URL of Anthropic's API.
const DefaultURL = "https://api.anthropic.com"

// defaultMaxTokens is the limit for an answer if the request sets none, because the API requires
// a limit.
const defaultMaxTokens = 16384

const (
	// leastThinking is the least number of tokens for thinking that the API accepts; leastAnswer
	// is how many tokens have to remain for the answer after it.
	leastThinking = 1024
	leastAnswer   = 1024
)

// Config configures a Model. Key and Now are required.
type Config struct {
	Key string
	// URL is the base URL; empty means DefaultURL.
	URL string
	// Thinking sets the extended thinking of the model.
	Thinking Thinking
	// Silence is how long the API may send nothing before a call is canceled; 0 means
	// remote.DefaultSilence.
	Silence time.Duration
	Now     func() time.Time
}

// Thinking is the setting of extended thinking: off (the zero value), adaptive, or a number of
// tokens.
type Thinking struct {
	Adaptive bool
	Tokens   int64
}

// Model implements model.Provider. Make one with New.
type Model struct {
	cfg    Config
	client sdk.Client
	http   *http.Client
}

// New returns a Model. It fails with invalid if Now or the key is missing, or if the key or the URL is malformed.
func New(cfg Config) (*Model, error) {
	if cfg.Now == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "anthropic", "Config.Now of the model provider is not set")
	}
	if cfg.Key == "" || strings.ContainsAny(cfg.Key, "\r\n\x00") {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "anthropic", "the API key of anthropic is missing or malformed").
			WithHint("set ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file in its configuration")
	}
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	if err := remote.CheckURL("anthropic.url", cfg.URL); err != nil {
		return nil, err
	}
	client := remote.NewClient(cfg.Silence)
	return &Model{
		cfg: cfg, http: client,
		// The SDK must not retry: the agent loop does, because it knows whether parts of the
		// answer were shown, and records each attempt.
		client: sdk.NewClient(
			option.WithoutEnvironmentDefaults(), option.WithAPIKey(cfg.Key), option.WithBaseURL(cfg.URL),
			option.WithHTTPClient(client), option.WithMaxRetries(0),
		),
	}, nil
}

// Close closes idle connections.
func (m *Model) Close() {
	m.http.Transport.(*remote.Transport).Base.(*http.Transport).CloseIdleConnections()
}

// Stream implements model.Provider.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		var resp *http.Response
		stream := m.client.Messages.NewStreaming(ctx, m.params(&req), option.WithResponseInto(&resp))
		defer stream.Close()
		a := answer{yield: yield}
		if resp != nil {
			a.id = remote.Clean(resp.Header.Get("request-id"))
		}
		if !m.read(stream, &a) {
			return
		}
		f := m.failure(ctx, stream.Err(), resp)
		f.Usage = a.usage
		if f.RequestID == "" {
			f.RequestID = a.id
		}
		yield(model.Chunk{}, remote.Hide(f, m.cfg.Key))
	}
}

// Models implements model.Lister.
func (m *Model) Models(ctx context.Context) ([]string, error) {
	var resp *http.Response
	page, err := m.client.Models.List(ctx, sdk.ModelListParams{Limit: sdk.Int(1000)}, option.WithResponseInto(&resp))
	if err != nil {
		return nil, remote.Hide(m.failure(ctx, err, resp), m.cfg.Key)
	}
	var names []string
	for _, info := range page.Data {
		names = append(names, info.ID)
	}
	return remote.Names(names), nil
}

// read yields the chunks of a stream. It returns false if the answer is complete, the consumer stopped, or an error was
// yielded; true if the stream ended before that.
func (m *Model) read(stream *ssestream.Stream[sdk.MessageStreamEventUnion], a *answer) bool {
	for stream.Next() {
		ev := stream.Current()
		more, err := a.event(&ev)
		if err != nil {
			f := &model.Failure{Class: "cut", Retryable: true, Message: remote.Clean(err.Error()), Usage: a.usage, RequestID: a.id}
			a.yield(model.Chunk{}, remote.Hide(f, m.cfg.Key))
			return false
		}
		if !more {
			return false
		}
	}
	return true
}

// failure returns the failure of a call that ended before its answer was complete.
func (m *Model) failure(ctx context.Context, err error, resp *http.Response) *model.Failure {
	var ae *sdk.Error
	switch {
	case err == nil && resp != nil && resp.StatusCode >= 300:
		return remote.Status(resp.StatusCode, resp.Header, "", "", m.cfg.Now())
	case err == nil && ctx.Err() == nil:
		return &model.Failure{Class: "cut", Retryable: true, Message: "the stream ended before the model's answer was complete"}
	case errors.As(err, &ae) && ae.StatusCode != 0 && ctx.Err() == nil:
		var h http.Header
		if resp != nil {
			h = resp.Header
		}
		status := ae.StatusCode
		if status < 300 {
			// An error event came in the middle of the stream. Its HTTP status is 200, so only the event's text tells the class
			// of the error.
			h, status = nil, 0
		}
		kind, text := wireError(ae.RawJSON())
		f := remote.Status(status, h, kind, text, m.cfg.Now())
		if status == 0 {
			f.Message = strings.TrimSuffix(f.Message, " (0)")
		}
		return f
	case err == nil:
		err = ctx.Err()
	}
	return remote.Broken(ctx, err, "the stream broke off")
}
