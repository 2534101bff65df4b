"""The archive of chats: index, search and ranking, with and without embeddings."""
