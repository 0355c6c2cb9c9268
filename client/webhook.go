package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// WebhookTolerance is the default of how old a webhook's signature may be, and how far in the
	// future: it covers differing clocks and the time of the delivery.
	WebhookTolerance = 5 * time.Minute

	signatureMax  = 1024 // bytes of a header
	signaturesMax = 8    // of one header
)

// VerifyWebhook checks that a request to a webhook was signed with the secret, was not changed,
// and is recent. header is the value of holdfast.WebhookSignatureHeader, body the received bytes;
// tolerance 0 means WebhookTolerance. It takes the same time for every wrong signature.
//
// It fails with unauthenticated if the signature is wrong or too old, and with invalid if the
// secret is empty. A copy of a request is valid too within the tolerance: a receiver that must act
// only once has to store the delivery's id for that long.
func VerifyWebhook(secret []byte, header string, body []byte, now time.Time, tolerance time.Duration) error {
	if len(secret) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "webhook", "the webhook's secret is empty").WithHint("use the content of secret_file")
	}
	if tolerance <= 0 {
		tolerance = WebhookTolerance
	}
	refuse := func(why string) error {
		return holdfast.Errorf(holdfast.KindUnauthenticated, "webhook", "the webhook's signature header %s", why)
	}
	if len(header) > signatureMax {
		return refuse("is too long")
	}
	stamp, sums := "", [][]byte{}
	for part := range strings.SplitSeq(header, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return refuse("is not a list of name=value")
		case name == "t" && stamp != "":
			return refuse("has two timestamps t=")
		case name == "t":
			stamp = value
		case name == "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				sums = append(sums, sum)
			}
		}
	}
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != stamp {
		return refuse("has no valid timestamp t=")
	}
	if len(sums) == 0 || len(sums) > signaturesMax {
		return refuse("has no valid signature v1=, or too many")
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	want, holds := mac.Sum(nil), false
	for _, sum := range sums {
		holds = hmac.Equal(sum, want) || holds
	}
	if !holds {
		return refuse("does not match the body and the secret")
	}
	if off := now.Sub(time.Unix(at, 0)); off > tolerance || off < -tolerance {
		return refuse("is too old, or its timestamp is in the future")
	}
	return nil
}
