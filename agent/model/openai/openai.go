package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
)

// DefaultURL is the base URL of OpenAI's own API.
const DefaultURL = "https://api.openai.com/v1"

// Config configures a Model. Now is required.
type Config struct {
	// Name is the provider's name in errors; empty means openai.
	Name string
	// URL is the base URL, to which /chat/completions is added; empty means DefaultURL.
	URL string
	// Key is the API key; it may be empty, because local servers need none.
	Key string
	// Silence is how long the server may send nothing before a call is canceled; 0 means
	// remote.DefaultSilence.
	Silence time.Duration
	Now     func() time.Time
}

// Model implements model.Provider. Make one with New.
type Model struct {
	cfg  Config
	base string
	own  bool
	http *http.Client
}

// New returns a Model. It fails with invalid if Now is missing, or if the URL or the key is malformed.
func New(cfg Config) (*Model, error) {
	if cfg.Name == "" {
		cfg.Name = "openai"
	}
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	if err := remote.CheckURL(cfg.Name+".url", cfg.URL); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "openai", "Config.Now of the model provider is not set")
	}
	if strings.ContainsAny(cfg.Key, "\r\n\x00") {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "openai", "the API key of the provider %s contains a line break or a NUL byte", cfg.Name).
			WithHint("write the key as one line without a NUL byte: OPENAI_API_KEY in the environment of the server, or the file that openai.key_file names")
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &Model{
		cfg: cfg, base: strings.TrimRight(cfg.URL, "/"),
		own: u.Hostname() == "api.openai.com", http: remote.NewClient(cfg.Silence),
	}, nil
}

// Close closes idle connections.
func (m *Model) Close() {
	m.http.Transport.(*remote.Transport).Base.(*http.Transport).CloseIdleConnections()
}

// Stream implements model.Provider.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		a := answer{yield: yield, req: &req}
		fail := func(f *model.Failure) {
			f.Usage = a.spent()
			if f.RequestID == "" {
				f.RequestID = a.id
			}
			yield(model.Chunk{}, remote.Hide(f, m.cfg.Key))
		}
		resp, err := m.post(ctx, &req)
		if err != nil {
			fail(remote.Broken(ctx, err, "no answer"))
			return
		}
		defer resp.Body.Close()
		a.id = remote.Clean(resp.Header.Get("x-request-id"))
		if resp.StatusCode != http.StatusOK {
			fail(m.refused(resp))
			return
		}
		a.begun = true
		err = m.read(resp, &a)
		var f *model.Failure
		switch {
		case a.gone:
		case errors.As(err, &f):
			fail(f)
		case err != nil:
			fail(remote.Broken(ctx, err, "the stream broke off"))
		default:
			if err := a.finish(); err != nil {
				fail(&model.Failure{Class: "cut", Retryable: true, Message: err.Error()})
			}
		}
	}
}

func (m *Model) post(ctx context.Context, req *model.Request) (*http.Response, error) {
	raw, err := json.Marshal(m.body(req))
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.base+"/chat/completions", bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	m.sign(r)
	return m.http.Do(r)
}

// sign adds the API key and the user agent to a request.
func (m *Model) sign(r *http.Request) {
	r.Header.Set("User-Agent", "holdfast")
	if m.cfg.Key != "" {
		r.Header.Set("Authorization", "Bearer "+m.cfg.Key)
	}
}

// maxModels is how many bytes of a list of models are read.
const maxModels = 4 << 20

// Models implements model.Lister.
func (m *Model) Models(ctx context.Context) ([]string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+"/models", nil)
	if err != nil {
		return nil, err
	}
	m.sign(r)
	resp, err := m.http.Do(r)
	if err != nil {
		return nil, remote.Hide(remote.Broken(ctx, err, "no answer"), m.cfg.Key)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, remote.Hide(m.refused(resp), m.cfg.Key)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return nil, remote.Hide(remote.Broken(ctx, err, "the list broke off"), m.cfg.Key)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, &model.Failure{Class: "invalid", Message: "the provider's answer is not a list of models", Hint: "check the provider's base URL: most end in /v1"}
	}
	var names []string
	for _, d := range list.Data {
		names = append(names, d.ID)
	}
	return remote.Names(names), nil
}

// read reads the answer: a stream, or one complete message from a server that does not stream.
func (m *Model) read(resp *http.Response, a *answer) error {
	body := io.LimitReader(resp.Body, maxBody)
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "application/json" {
		raw, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		return a.chunk(raw)
	}
	return events(body, func(data []byte) (bool, error) {
		if string(data) == "[DONE]" {
			a.done = true
			return false, nil
		}
		if err := a.chunk(data); err != nil {
			return false, err
		}
		return !a.gone, nil
	})
}

// refused returns the failure for an answer with an error status.
func (m *Model) refused(resp *http.Response) *model.Failure {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var e struct {
		Error wireError `json:"error"`
	}
	// A body that is not an error document may be a web page: leave its text out.
	_ = json.Unmarshal(raw, &e)
	return remote.Status(resp.StatusCode, resp.Header, e.Error.kind(), e.Error.Message, m.cfg.Now())
}
