package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
)

// readAll reads partition 0 of a topic by a Reader of kafka-go, from its beginning up to an offset, and prints the
// offsets of the messages in the order in which they came. It gives up after twice as many as there can be.
//
//	kafka-go SERVERS TOPIC LAST_OFFSET
func readAll(servers, topic, last string) error {
	end, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: strings.Split(servers, ","), Topic: topic, MinBytes: 1, MaxBytes: 1_000_000})
	defer reader.Close()
	if err := reader.SetOffset(kafka.FirstOffset); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	offsets := []int64{}
	for int64(len(offsets)) <= 2*end {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d messages: %w", len(offsets), err)
		}
		offsets = append(offsets, message.Offset)
		if message.Offset == end {
			break
		}
	}
	return json.NewEncoder(os.Stdout).Encode(offsets)
}
